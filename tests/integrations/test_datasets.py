"""`Dataset.map` with an EncodeColumn: vectors, missing values, processes, and the cache of the library."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
from datasets.fingerprint import Hasher

import elmo
from elmo.errors import ConfigError, WeightsError
from elmo.integrations.datasets import EncodeColumn
from elmo.weights.lookup import tiny_random
from elmo.weights.store import save_store

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["One .", None, "They sat on the bank .", ""]


@pytest.fixture(autouse=True)
def no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load("tiny-random", device="cpu")


def dataset() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 2, 3]})


def column(mapped: datasets.Dataset) -> np.ndarray:
    return np.array(mapped.with_format("numpy")["elmo"][:])


def test_a_mapped_dataset_has_the_vectors_of_its_texts(embedder):
    encode = EncodeColumn("tiny-random", device="cpu", missing="zeros", layers="top")
    mapped = dataset().map(encode, batched=True, batch_size=2)
    assert mapped.column_names == ["text", "label", "elmo"]
    assert mapped.features["elmo"].feature.dtype == "float32"
    expected = embedder.encode(TEXTS, missing="empty", layers="top")
    np.testing.assert_allclose(column(mapped), expected, atol=1e-6)
    assert not column(mapped)[1].any()


def test_rows_with_missing_texts_are_left_out_with_all_columns(embedder):
    mapped = dataset().map(EncodeColumn("tiny-random", device="cpu", missing="skip"), batched=True, batch_size=2)
    assert mapped["label"][:] == [0, 2, 3]
    assert mapped["text"][:] == [TEXTS[0], TEXTS[2], TEXTS[3]]
    np.testing.assert_allclose(column(mapped), embedder.encode([TEXTS[0], TEXTS[2], TEXTS[3]]), atol=1e-6)


def test_a_missing_text_is_an_error_by_default():
    with pytest.raises(TypeError, match=r"texts\[1\] is None"):
        dataset().map(EncodeColumn("tiny-random", device="cpu"), batched=True)


def test_two_processes_give_the_same_vectors():
    encode = EncodeColumn("tiny-random", device="cpu", missing="zeros")
    expected = column(dataset().map(encode, batched=True))
    np.testing.assert_allclose(column(dataset().map(encode, batched=True, num_proc=2)), expected, atol=1e-6)


def test_the_fingerprint_depends_on_the_model_and_not_on_its_use(tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        save_store(tmp_path / name, tiny_random(seed=seed))
    one, again, two = (EncodeColumn(str(tmp_path / name), device="cpu") for name in ("one", "one", "two"))
    before = Hasher.hash(one)
    one({"text": ["One ."]})
    assert before == Hasher.hash(one) == Hasher.hash(again) != Hasher.hash(two)
    data = pickle.dumps(one)
    (tmp_path / "one").rename(tmp_path / "first")
    (tmp_path / "two").rename(tmp_path / "one")
    with pytest.raises(WeightsError, match="has changed"):
        pickle.loads(data)({"text": ["One ."]})


def test_wrong_settings_are_refused():
    for options, message in (
        ({"missing": "drop"}, "drop"),
        ({"layers": "all"}, "one vector per text"),
        ({"state": "carry"}, "carry"),
    ):
        with pytest.raises(ConfigError, match=message):
            EncodeColumn("tiny-random", device="cpu", **options)
    encode = EncodeColumn("tiny-random", "sentence", device="cpu")
    with pytest.raises(ConfigError, match="no column 'sentence'"):
        dataset().map(encode, batched=True)
    with pytest.raises(ConfigError, match="batched=True"):
        dataset().map(EncodeColumn("tiny-random", device="cpu"))


def test_the_example_finds_the_nearest_text_of_each_row(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "datasets_column.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_DATASETS_CACHE": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 of 4 rows have a text" in done.stdout
    nearest = dict(re.findall(r"^line (\d): .* nearest: (.*)$", done.stdout, re.M))
    assert nearest.keys() == {"0", "2", "3"}
    assert "judge" in nearest["0"]
    assert "court" in nearest["3"]
