"""A model as a folder for the Hugging Face Hub: written, looked at, and loaded again.

    pip install huggingface_hub
    python examples/hugging_face_hub.py FOLDER

`push_to_hub("english", "USER/NAME", ...)` uploads the same files; then `elmo.load("hf://USER/NAME", download=True)`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import elmo
from elmo.integrations.huggingface import from_pretrained, save_pretrained


def main(folder: str, model: str = "english") -> None:
    saved = save_pretrained(model, Path(folder), repo_id="ada/elmo-english", language="en", license="cc-by-sa-4.0")
    for path in sorted(saved.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    print((saved / "README.md").read_text(encoding="utf-8").split("---")[1].strip())
    vectors = from_pretrained(saved).embed("The bank of the river .")
    assert np.array_equal(vectors, elmo.load(model).embed("The bank of the river ."))
    print("the vectors are equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
