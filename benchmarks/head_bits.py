"""How much perplexity does a softmax in 6, 5 or 4 bits per weight cost, and how many megabytes does it save?

    python benchmarks/head_bits.py default held-out.txt.xz --every 40 --tokenizer default

Each number of bits is measured with the same LSTM states, on every Nth sentence, with the full softmax. The size is
that of head.safetensors; "deflated" is its size in a zip file such as a wheel.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from elmo.embed.lm import LanguageModel  # noqa: E402
from elmo.embed.load import make_embedder, model_parts  # noqa: E402
from elmo.pretrain.data.corpus import Reading, read_sentences  # noqa: E402
from elmo.weights.store import HEAD, TENSORS, read_store, save_store  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("files", nargs="+", help="held-out text")
    parser.add_argument("--every", type=int, default=40, help="measure every Nth sentence")
    parser.add_argument("--tokenizer", default=None, help="of raw text; without it, one tokenised sentence per line")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    reading = Reading(tokenize=options.tokenizer)
    texts = {Path(f).name: list(islice(read_sentences([f], reading), 0, None, options.every)) for f in options.files}
    results = []
    for bits, storage, lm, sizes in stored_models(options.model, options.device):
        name = f"{bits} bits" if bits else storage
        for file, sentences in texts.items():
            measured = lm.perplexity(sentences)
            results.append(
                {"softmax": name, "file": file, "perplexity": measured.mean, "words": measured.num_words, **sizes}
            )
            base = next(r for r in results if r["file"] == file)
            change = 100 * (measured.mean / base["perplexity"] - 1)
            megabytes = f"{sizes['head'] / 1e6:.2f} MB, deflated {sizes['head_deflated'] / 1e6:.2f} MB"
            print(f"{name:8} {file:32} {measured.mean:9.4f} {change:+7.3f}%  {megabytes}", flush=True)
    print(json.dumps({"model": options.model, "every": options.every, "torch": torch.__version__, "results": results}))


def stored_models(model: str, device: str) -> Iterator[tuple[int | None, str, LanguageModel, dict[str, int]]]:
    """The model with its softmax in int8 and in fewer bits, as it is read from a folder, and the sizes of its files."""
    parts = model_parts(model)
    for bits in (None, 6, 5, 4):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "model"
            save_store(folder, parts, storage="int8", head_bits=bits)
            sizes = {}
            for key, file in (("body", TENSORS), ("head", HEAD)):
                data = (folder / file).read_bytes()
                sizes |= {key: len(data), f"{key}_deflated": len(zlib.compress(data, 6))}
            stored = read_store(folder)
        embedder = make_embedder(stored, name=model, device=device)
        yield bits, "int8", LanguageModel(embedder), sizes


if __name__ == "__main__":
    main()
