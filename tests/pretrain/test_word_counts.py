"""Word counts of the training text: counted from prepared data, stored with the model, used to rank substitutes."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest
from in_process_cli import run_in_process
from models_with_head import tiny_with_head
from tiny_run import settings, write_text

import elmo
from elmo.embed.lm import LanguageModel
from elmo.errors import WeightsError
from elmo.files import sha256_file
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.job import pretrain
from elmo.text.vocab import BOS, EOS, UNK
from elmo.weights.convert import convert_model
from elmo.weights.lookup import find_model
from elmo.weights.store import read_store, save_store

COUNTS = np.array([5, 5, 2, 40, 30, 20, 10, 9, 8, 0, 1])


def with_counts():
    return dataclasses.replace(tiny_with_head(), word_counts=COUNTS)


def rewrite(folder, name, data: bytes) -> None:
    """Replaces a file of a model folder and its entry in the manifest."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": sha256_file(folder / name), "bytes": len(data)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_prepared_data_counts_the_words_of_its_training_text(tmp_path):
    text = write_text(tmp_path / "text.txt", 200)
    data = prepare(PrepareConfig(files=(str(text),), heldout=0, max_vocab=20), tmp_path / "data")
    expected = Counter(text.read_text().split())
    counts = dict(zip(data.vocab.words, data.word_counts().tolist(), strict=True))
    for word in data.vocab.words[3:]:
        assert counts[word] == expected[word]
    assert counts[UNK] == sum(n for word, n in expected.items() if word not in counts)
    assert (counts[BOS], counts[EOS]) == (200, 200)


def test_trained_model_stores_the_counts_of_its_training_text(tmp_path, capsys):
    text = write_text(tmp_path / "text.txt")
    run = pretrain(settings(text, {"train": {"max_steps": 2}}), tmp_path / "run")
    parts = find_model(run.model)
    counts = dict(zip(parts.vocab, parts.word_counts.tolist(), strict=True))
    num_words = len(text.read_text().split())
    counted = sum(count for word, count in counts.items() if word not in (BOS, EOS))
    assert 0.8 * num_words < counted < num_words  # 5% is held out
    assert "word_counts.txt" in json.loads((run.model / "manifest.json").read_text())["files"]
    lm = LanguageModel(elmo.load(run.model, device="cpu"))
    assert lm.word_prior == "counts"
    np.testing.assert_allclose(lm.unigram_log_probs, np.log((parts.word_counts + 1) / (parts.word_counts + 1).sum()))
    shown = run_in_process(capsys, "info", str(run.model)).stdout
    assert "word_prior         word counts of the training text (" in shown


def test_counts_are_read_back_and_change_the_ranking(tmp_path):
    save_store(tmp_path / "with", with_counts())
    save_store(tmp_path / "without", tiny_with_head())
    np.testing.assert_array_equal(read_store(tmp_path / "with").word_counts, COUNTS)
    assert read_store(tmp_path / "without").word_counts is None
    counted, zipf = (LanguageModel(elmo.load(tmp_path / name, device="cpu")) for name in ("with", "without"))
    assert (counted.word_prior, zipf.word_prior) == ("counts", "zipf")
    given = LanguageModel(zipf.embedder, word_counts=COUNTS)
    assert counted.substitutes("the bank", k=8) == given.substitutes("the bank", k=8)
    assert counted.substitutes("the bank", k=8) != zipf.substitutes("the bank", k=8)


def test_models_without_counts_say_so(tmp_path, capsys):
    save_store(tmp_path / "without", tiny_with_head())
    facts = json.loads(run_in_process(capsys, "info", str(tmp_path / "without"), "--json").stdout)
    assert facts["word_prior"].startswith("Zipf's law")
    assert json.loads(run_in_process(capsys, "info", "tiny-random", "--json").stdout)["word_prior"] is None


def test_large_count_lists_are_compressed(tmp_path):
    parts = with_counts()
    many = np.arange(60_000) + 1_000_000
    words = (*parts.vocab[:3], *(f"w{i}" for i in range(60_000 - 3)))
    config = dataclasses.replace(parts.config, head=None)
    tensors = {name: tensor for name, tensor in parts.tensors.items() if not name.startswith("head.")}
    save_store(
        tmp_path / "m", dataclasses.replace(parts, config=config, tensors=tensors, vocab=words, word_counts=many)
    )
    assert (tmp_path / "m" / "word_counts.txt.xz").is_file()
    np.testing.assert_array_equal(read_store(tmp_path / "m").word_counts, many)


@pytest.mark.parametrize(
    ("data", "word"), [(b"1\n2\n", "2 counts"), (b"1\n" * 12, "more than 11"), (b"1\n" * 10 + b"-1\n", "not a count")]
)
def test_wrong_counts_are_errors(tmp_path, data, word):
    save_store(tmp_path / "m", with_counts())
    rewrite(tmp_path / "m", "word_counts.txt", data)
    with pytest.raises(WeightsError, match=word):
        read_store(tmp_path / "m")


def test_damaged_missing_and_newer_counts_are_errors(tmp_path):
    save_store(tmp_path / "m", with_counts())
    (tmp_path / "m" / "word_counts.txt").write_bytes(b"1\n" * 11)
    with pytest.raises(WeightsError, match="manifest"):
        read_store(tmp_path / "m")
    save_store(tmp_path / "m", with_counts(), overwrite=True)
    settings_of_model = json.loads((tmp_path / "m" / "config.json").read_text())
    newer = json.dumps({**settings_of_model, "word_counts": 2}).encode()
    rewrite(tmp_path / "m", "config.json", newer)
    with pytest.raises(WeightsError, match="version 2"):
        read_store(tmp_path / "m")
    save_store(tmp_path / "m", with_counts(), overwrite=True)
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    del manifest["files"]["word_counts.txt"]
    (tmp_path / "m" / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "m" / "word_counts.txt").unlink()
    with pytest.raises(WeightsError, match="missing"):
        read_store(tmp_path / "m")


def test_conversion_keeps_counts_or_reports_their_loss(tmp_path):
    save_store(tmp_path / "m", with_counts())
    assert convert_model(tmp_path / "m", tmp_path / "copy")["not_exact"] == []
    np.testing.assert_array_equal(read_store(tmp_path / "copy").word_counts, COUNTS)
    report = convert_model(tmp_path / "m", tmp_path / "published", target="hdf5")
    assert any("word counts" in line for line in report["not_exact"])
    convert_model(tmp_path / "m", tmp_path / "small", without_head=True)
    assert read_store(tmp_path / "small").word_counts is None
