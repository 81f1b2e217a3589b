"""A pandas column becomes a table of vectors with its index; missing values are refused, left out, or zero."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

import elmo
from elmo.errors import ConfigError
from elmo.integrations.pandas import encode_column

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load("tiny-random", device="cpu")


def test_a_column_becomes_a_table_with_its_index(embedder):
    column = pandas.Series(["One .", "Two here ."], index=["b", "a"], name="text")
    table = encode_column(embedder, column, layers="top", pooling="max")
    assert list(table.index) == ["b", "a"]
    assert list(table.columns) == [f"elmo_{number}" for number in range(embedder.dim)]
    np.testing.assert_array_equal(table.to_numpy(), embedder.encode(list(column), layers="top", pooling="max"))
    joined = pandas.DataFrame({"text": column}).join(table)
    np.testing.assert_array_equal(joined.loc["a", "elmo_0"], table.loc["a", "elmo_0"])


@pytest.mark.parametrize("value", [None, float("nan"), np.nan, pandas.NA, pandas.NaT])
@pytest.mark.parametrize("dtype", [object, "string"])
def test_missing_values_are_refused_left_out_or_zero(embedder, value, dtype):
    column = pandas.Series(["One .", value, "Two ."], index=[10, 20, 30], dtype=dtype)
    with pytest.raises(TypeError, match=r"texts\[1\]"):
        encode_column(embedder, column)
    expected = embedder.encode(["One .", "Two ."])
    skipped = encode_column(embedder, column, missing="skip")
    assert list(skipped.index) == [10, 30]
    np.testing.assert_allclose(skipped.to_numpy(), expected, atol=1e-6)
    zeros = encode_column(embedder, column, missing="zeros")
    assert list(zeros.index) == [10, 20, 30]
    assert not zeros.loc[20].any()
    np.testing.assert_allclose(zeros.loc[[10, 30]].to_numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("column", [[], [None, None]])
def test_a_column_without_texts_becomes_an_empty_table(embedder, column):
    table = encode_column(embedder, pandas.Series(column, dtype=object), missing="skip")
    assert table.shape == (0, embedder.dim)


def test_an_index_with_duplicates_keeps_its_rows(embedder):
    table = encode_column(embedder, pandas.Series(["One .", None, "Two ."], index=[1, 1, 1]), missing="skip")
    assert list(table.index) == [1, 1]


def test_token_lists_are_not_tokenised_again(embedder):
    table = encode_column(embedder, pandas.Series([["Do", "n't"], ["go"]]))
    np.testing.assert_array_equal(table.to_numpy(), embedder.encode([["Do", "n't"], ["go"]]))


def test_wrong_arguments_are_refused(embedder):
    with pytest.raises(ConfigError, match="drop"):
        encode_column(embedder, pandas.Series(["One ."]), missing="drop")
    with pytest.raises(TypeError, match="DataFrame"):
        encode_column(embedder, pandas.DataFrame({"text": ["One ."]}))
    with pytest.raises(ConfigError, match="one vector per text"):
        encode_column(embedder, pandas.Series(["One ."]), layers="all")


def test_the_example_joins_vectors_to_a_table():
    command = [sys.executable, str(Path("examples") / "pandas_column.py"), "tiny-random"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    dim = elmo.load("tiny-random", device="cpu").dim
    assert f"4 rows, {dim} numbers each" in done.stdout
    assert re.search(r"missing text has the zero vector: True", done.stdout)
    assert done.stdout.count("nearest:") == 3
