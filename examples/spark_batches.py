"""Spark: a column of sentence vectors for a DataFrame of any size; every Python worker loads the model once.

python examples/spark_batches.py
python examples/spark_batches.py my-model/
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import elmo

TEXTS = ["The bank raised its rates .", "They sat on the bank of the river .", None, "She deposited the money ."]


def main(model: str = "english") -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    embed = elmo.batch_function(model, column="text", pooling="mean", missing="null")
    frame = spark.createDataFrame([(i, text) for i, text in enumerate(TEXTS)], "id long, text string").repartition(2)
    result = frame.mapInPandas(lambda batches: map(embed, batches), "id long, text string, vectors array<float>")
    for row in sorted(result.collect(), key=lambda row: row.id):
        print(f"{row.text!s:40} {'no vector' if row.vectors is None else f'vector of {len(row.vectors)}'}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:2])
