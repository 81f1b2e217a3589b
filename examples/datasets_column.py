"""A column of a Hugging Face dataset in, vectors out: each text finds the one that is most similar to it.

    pip install datasets
    python examples/datasets_column.py [MODEL]

The library stores the vectors in its cache: a second run of the same `map` on a stored dataset computes nothing.
"""

from __future__ import annotations

import sys

from datasets import Dataset

from elmo.integrations.datasets import EncodeColumn

TEXTS = ["The court sentenced the thief .", None, "Fry the onions in butter .", "The judge heard the witness ."]


def main(model: str = "default") -> None:
    encode = EncodeColumn(model, "text", missing="skip", normalize_embeddings=True, device="cpu")
    dataset = Dataset.from_dict({"text": TEXTS, "line": range(len(TEXTS))})
    dataset = dataset.map(encode, batched=True).with_format("numpy")
    vectors = dataset["elmo"][:]  # (N, D), each of length one
    print(f"{len(dataset)} of {len(TEXTS)} rows have a text, {vectors.shape[1]} numbers each")
    for row in dataset:
        nearest = int((vectors @ row["elmo"]).argsort()[-2])  # the nearest one is the text itself
        print(f"line {row['line']}: {row['text']}  nearest: {dataset[nearest]['text']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
