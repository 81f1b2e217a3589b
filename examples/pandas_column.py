"""A column of a pandas table in, vectors out: each text finds the one that is most similar to it.

python examples/pandas_column.py [MODEL]
"""

from __future__ import annotations

import sys

import pandas

import elmo
from elmo.integrations.pandas import encode_column

TEXTS = ["The court sentenced the thief .", None, "Fry the onions in butter .", "The judge heard the witness ."]


def main(model: str = "default") -> None:
    embedder = elmo.load(model, device="cpu")
    table = pandas.DataFrame({"text": TEXTS}, index=["a", "b", "c", "d"])
    vectors = encode_column(embedder, table["text"], missing="zeros")
    print(f"{len(table.join(vectors))} rows, {vectors.shape[1]} numbers each")
    print("missing text has the zero vector:", not vectors.loc["b"].any())
    known = encode_column(embedder, table["text"], missing="skip")  # without row b
    cosines = pandas.DataFrame(embedder.similarity(known.to_numpy(), known.to_numpy()), known.index, known.index)
    for label in known.index:
        nearest = cosines[label].drop(label).idxmax()
        print(f"{table.text[label]}  nearest: {table.text[nearest]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
