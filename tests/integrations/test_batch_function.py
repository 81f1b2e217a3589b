"""The batch function with pandas, Dask, Spark and Ray Data in local mode: the vectors of the embedder, row by row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import elmo
from elmo.errors import DataError

pd = pytest.importorskip("pandas")

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "elmo" / "golden" / "allennlp"
FILES = (MODEL / "options.json", MODEL / "lm_weights.hdf5")
TEXTS = [f"word{i} of the bank {'and more ' * (i % 4)}." for i in range(23)]


@pytest.fixture(scope="module")
def embedder():
    return elmo.load(*FILES, device="cpu")


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Worker processes of all libraries find this package."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    yield
    del os.environ["PYTHONPATH"]
    if before is not None:
        os.environ["PYTHONPATH"] = before


def make_function(**options):
    return elmo.batch_function(*FILES, device="cpu", **options)


def check(vectors, embedder) -> None:
    np.testing.assert_allclose(np.stack(list(vectors)), embedder.encode(TEXTS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [object, "string"])
def test_pandas_keeps_the_index_and_the_other_columns(dtype, embedder):
    index = pd.Index(range(100, 123), name="key")
    frame = pd.DataFrame({"id": range(23), "text": pd.Series(TEXTS, dtype=dtype, index=index)}, index=index)
    result = make_function()(frame)
    assert result.index.equals(index)
    assert list(result.columns) == ["id", "text", "vectors"]
    assert list(frame.columns) == ["id", "text"]  # the input is unchanged
    check(result["vectors"], embedder)


def test_pandas_missing_values_of_every_kind_are_null_or_an_error(embedder):
    frame = pd.DataFrame({"text": pd.Series(["One .", None, float("nan"), pd.NA], dtype=object)})
    assert make_function(missing="null")(frame)["vectors"].isna().tolist() == [False, True, True, True]
    with pytest.raises(DataError, match="Column 'text'"):
        make_function()(frame)


def test_pandas_token_vectors_can_be_written_to_parquet(embedder, tmp_path):
    result = make_function(pooling=None)(pd.DataFrame({"text": TEXTS}))
    result.to_parquet(tmp_path / "out.parquet")
    back = pd.read_parquet(tmp_path / "out.parquet")
    for tokens, vectors, expected in zip(back["tokens"], back["vectors"], embedder.embed(TEXTS), strict=True):
        assert len(tokens) == len(expected)
        np.testing.assert_allclose(np.stack(vectors), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask(scheduler, embedder):
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame({"id": range(23), "text": TEXTS}), npartitions=4)
    meta = frame._meta.assign(vectors=pd.Series(dtype=object))
    options = {"num_workers": 2} if scheduler == "processes" else {}
    check(frame.map_partitions(make_function(), meta=meta).compute(scheduler=scheduler, **options)["vectors"], embedder)


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


def test_spark_over_pandas_batches(spark, embedder):
    frame = spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string").repartition(2)
    function = make_function()
    result = frame.mapInPandas(lambda batches: map(function, batches), "id long, text string, vectors array<float>")
    check([row.vectors for row in sorted(result.collect(), key=lambda row: row.id)], embedder)


def test_spark_token_vectors_over_arrow_batches(spark, embedder):
    frame = spark.createDataFrame(list(enumerate(TEXTS)), "id long, text string").repartition(2)
    function = make_function(pooling=None)
    schema = "id long, text string, tokens array<string>, vectors array<array<float>>"

    def embed(batches):
        import pyarrow as pa

        for batch in map(function, batches):
            vectors = batch.column("vectors").cast(pa.list_(pa.list_(pa.float32())))  # Spark has no fixed-size lists
            yield batch.set_column(batch.schema.get_field_index("vectors"), "vectors", vectors)

    rows = sorted(frame.mapInArrow(embed, schema).collect(), key=lambda row: row.id)
    for row, expected in zip(rows, embedder.embed(TEXTS), strict=True):
        np.testing.assert_allclose(np.array(row.vectors), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "library"), [("dask_batches.py", "dask"), ("spark_batches.py", "pyspark")])
def test_the_example_prints_a_vector_per_text(name, library, embedder):
    pytest.importorskip(library)
    arguments = [sys.executable, str(ROOT / "examples" / name), "tiny-random"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [" vector of " in line for line in lines[:4]] == [True, True, False, True], done.stdout
    assert lines[2].split() == ["None", "no", "vector"]
