"""Dask: a column of sentence vectors for a DataFrame of any size; every worker process loads the model once.

python examples/dask_batches.py
python examples/dask_batches.py my-model/
"""

from __future__ import annotations

import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd

import elmo

TEXTS = ["The bank raised its rates .", "They sat on the bank of the river .", None, "She deposited the money ."]


def main(model: str = "english") -> None:
    embed = elmo.batch_function(model, column="text", pooling="mean", missing="null")
    frame = dd.from_pandas(pd.DataFrame({"id": range(4), "text": TEXTS}), npartitions=2)
    meta = frame._meta.assign(vectors=pd.Series(dtype=object))  # the result's columns, so that Dask need not try
    vectors = frame.map_partitions(embed, meta=meta).compute(scheduler="threads")["vectors"]
    for text, vector in zip(TEXTS, vectors, strict=True):
        print(f"{text!s:40} {'no vector' if vector is None else f'vector of {len(vector)}'}")
    print(f"all finite: {np.isfinite(np.stack(vectors.dropna().tolist())).all()}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
