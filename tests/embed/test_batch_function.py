"""The batch function on Arrow batches: the vectors of `Embedder`, missing rows, pickling, and refused input."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import elmo
from elmo.errors import ConfigError, DataError

MODEL = Path(__file__).resolve().parent.parent.parent / "elmo" / "golden" / "allennlp"
FILES = (MODEL / "options.json", MODEL / "lm_weights.hdf5")
TEXTS = ["The bank raised its rates .", "", "Über 300 μm — ja", "x"]


def make_function(**options):
    return elmo.batch_function(*FILES, device="cpu", **options)


@pytest.fixture(scope="module")
def embedder():
    return elmo.load(*FILES, device="cpu")


@pytest.mark.parametrize("kind", ["table", "record batch", "chunked table"])
def test_pooled_vectors_are_those_of_encode_as_a_fixed_size_list(kind, embedder):
    batch = pa.record_batch({"id": list(range(4)), "text": TEXTS})
    if kind != "record batch":
        batch = pa.Table.from_batches([batch.slice(0, 3), batch.slice(3)] if kind == "chunked table" else [batch])
    result = make_function(pooling="max", layers="top")(batch)
    assert type(result) is type(batch)
    assert result.schema.names == ["id", "text", "vectors"]
    assert result.schema.field("vectors").type == pa.list_(pa.float32(), embedder.dim)
    vectors = np.array(result.column("vectors").to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(vectors, embedder.encode(TEXTS, pooling="max", layers="top"), rtol=0, atol=1e-6)


def test_token_vectors_come_with_their_tokens(embedder):
    result = make_function(pooling=None, output="elmo")(pa.table({"text": TEXTS}))
    assert result["tokens"].to_pylist() == [[token.text for token in embedder.tokenize(text)] for text in TEXTS]
    assert result.schema.field("elmo").type == pa.list_(pa.list_(pa.float32(), embedder.dim))
    for vectors, expected in zip(result["elmo"].to_pylist(), embedder.embed(TEXTS), strict=True):
        np.testing.assert_allclose(np.reshape(vectors, (-1, embedder.dim)), expected, rtol=0, atol=1e-6)


def test_a_column_of_tokens_is_not_tokenised_again(embedder):
    sentences = [["New York", "!"], ["one,two"]]
    result = make_function(column="tokens", pooling=None)(pa.table({"tokens": sentences}))
    assert result.schema.names == ["tokens", "vectors"]
    assert [len(vectors) for vectors in result["vectors"].to_pylist()] == [2, 1]


def test_all_layers_are_one_list_per_layer(embedder):
    pooled = make_function(layers="all")(pa.table({"text": TEXTS}))["vectors"].to_pylist()
    np.testing.assert_allclose(np.array(pooled), embedder.encode(TEXTS, layers="all"), rtol=0, atol=1e-6)
    tokens = make_function(layers="all", pooling=None)(pa.table({"text": TEXTS}))["vectors"].to_pylist()
    assert np.shape(tokens[0]) == (6, embedder.num_layers, embedder.dim)
    np.testing.assert_allclose(np.moveaxis(np.array(tokens[0]), 0, 1), embedder.layers(TEXTS)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", None])
@pytest.mark.parametrize("layers", ["average", "all"])
def test_missing_rows_are_null_if_null_is_chosen(pooling, layers):
    table = pa.table({"text": ["One .", None, "Two words ."]})
    kept = make_function(pooling=pooling, layers=layers, missing="null")(table)
    assert [vectors is None for vectors in kept["vectors"].to_pylist()] == [False, True, False]
    whole = make_function(pooling=pooling, layers=layers)(table.filter(table["text"].is_valid()))
    assert kept["vectors"].drop_null().to_pylist() == whole["vectors"].to_pylist()


def test_missing_rows_are_zero_vectors_if_empty_is_chosen_and_an_error_by_default(embedder):
    table = pa.table({"text": ["One .", None]})
    assert make_function(missing="empty")(table)["vectors"].to_pylist()[1] == [0.0] * embedder.dim
    with pytest.raises(DataError, match=r"Column 'text': texts\[1\] is None") as caught:
        make_function()(table)
    assert "missing=" in caught.value.hint


@pytest.mark.parametrize("pooling", ["mean", None])
def test_an_empty_batch_has_the_same_schema(pooling):
    function = make_function(pooling=pooling)
    table = pa.table({"text": TEXTS})
    assert function(table.slice(0, 0)).schema == function(table).schema


def test_float16_halves_the_vectors(embedder):
    result = make_function(dtype="float16")(pa.table({"text": TEXTS}))
    assert result.schema.field("vectors").type == pa.list_(pa.float16(), embedder.dim)


def test_a_pickled_function_loads_the_model_in_another_process(tmp_path):
    function = make_function(tokenizer="whitespace")
    table = pa.table({"text": TEXTS})
    expected = function(table)
    pickled = pickle.dumps(function)
    assert len(pickled) < 2000  # settings, no weights
    (tmp_path / "function").write_bytes(pickled)
    code = (
        "import pickle, sys, pyarrow as pa\n"
        "function = pickle.load(open(sys.argv[1], 'rb'))\n"
        f"print(function(pa.table({{'text': {TEXTS!r}}}))['vectors'].to_pylist())"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "function")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=MODEL.parent.parent.parent, check=False)
    assert done.stdout == f"{expected['vectors'].to_pylist()}\n", done.stderr


def test_threads_share_one_model():
    function = make_function()
    batches = [pa.table({"text": [f"word{i} and more ."] * (i + 1)}) for i in range(12)]
    expected = [function(batch)["vectors"].to_pylist() for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(function, batches))
    for result, vectors in zip(results, expected, strict=True):
        np.testing.assert_allclose(result["vectors"].to_pylist(), vectors, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "batch", "message"),
    [
        ({}, {"body": ["x"]}, "no column 'text'; it has body"),
        ({}, {"text": ["x"], "vectors": [1]}, "has a column 'vectors' already"),
        ({"pooling": None}, {"text": ["x"], "tokens": [1]}, "has a column 'tokens' already"),
        ({}, {"text": [3]}, r"Column 'text': texts\[0\] is an int 3"),
    ],
)
def test_batches_that_cannot_be_embedded_are_refused(options, batch, message):
    with pytest.raises(DataError, match=message):
        make_function(**options)(pa.table(batch))


def test_a_dict_is_refused_with_what_ray_needs():
    with pytest.raises(TypeError, match='batch_format="pyarrow"'):
        make_function()({"text": np.array(["x"])})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "carry"}, "state is 'carry'; expected reset or warm"),
        ({"missing": "drop"}, "missing is 'drop'"),
        ({"pooling": "sum"}, "pooling is 'sum'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"tokenizer": str.split}, "expected a name"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_options_are_checked_before_any_batch(options, message):
    with pytest.raises(ConfigError, match=message):
        make_function(**options)
