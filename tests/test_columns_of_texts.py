"""Integrations without their libraries: batches of `datasets` are dicts, and a missing library is one sentence."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import elmo
from elmo.errors import MissingExtra
from elmo.integrations.datasets import EncodeColumn
from elmo.integrations.pandas import encode_column


def test_a_batch_of_a_dataset_needs_no_library() -> None:
    batch = {"text": ["One .", None, float("nan"), ["Two", "."]], "label": [0, 1, 2, 3]}
    expected = elmo.load("tiny-random", device="cpu").encode(["One .", ["Two", "."]])
    skipped = EncodeColumn("tiny-random", device="cpu", missing="skip")(batch)
    assert skipped["label"] == [0, 3]
    np.testing.assert_array_equal(skipped["elmo"], expected)
    zeros = EncodeColumn("tiny-random", device="cpu", missing="zeros", output="vector")(batch)
    assert list(zeros) == ["vector"]
    np.testing.assert_array_equal(zeros["vector"][[0, 3]], expected)
    assert not zeros["vector"][1:3].any()


def test_without_spacy_the_integration_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("elmo.integrations.spacy")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("spacy", "thinc", "thinc.api"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"spaCy is needed for this and is not installed\.\n  pip install spacy"):
        importlib.import_module("elmo.integrations.spacy")


def test_without_pandas_the_integration_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        encode_column(elmo.load("tiny-random", device="cpu"), ["One ."])
