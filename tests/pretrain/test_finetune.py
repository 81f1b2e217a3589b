"""A trained model on new text: its words kept, new ones added sensibly, before and after on both kinds of text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process_cli import elmo_inside
from tiny_run import settings, write_text

import elmo
from elmo.embed.lm import LanguageModel
from elmo.errors import ConfigError
from elmo.model.head import SoftmaxHead
from elmo.pretrain.config import RunConfig
from elmo.pretrain.finetune import adapt_model, adapt_vocabulary, finetune
from elmo.pretrain.job import pretrain
from elmo.text.vocab import Vocabulary
from elmo.weights.convert import drop_head
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.store import read_store


def write_domain(path: Path, num_sentences: int = 300) -> Path:
    """Text of another kind: old words in another order, and new ones (v0 ...) that occur often."""
    chance = np.random.default_rng(1)
    lines = []
    for _ in range(num_sentences):
        words = [f"v{chance.integers(6)}" if chance.random() < 0.4 else f"w{50 + chance.integers(6)}" for _ in range(8)]
        lines.append(" ".join(words))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a trained model, its kind of text, and text of another kind."""
    folder = tmp_path_factory.mktemp("finetune")
    pretrain(settings(write_text(folder / "old.txt")), folder / "run")
    write_text(folder / "old_test.txt", 40, seed=9)
    write_domain(folder / "new.txt")
    write_domain(folder / "new_test.txt", 40)
    return folder


def domain_run(place: Path, **train) -> RunConfig:
    data = {"heldout_files": [str(place / "new_test.txt")], "heldout": 0.0}
    return settings(place / "new.txt", {"data": data, "train": {"validate_every": 0, **train}, "optim": {"lr": 0.01}})


def test_vocabulary_keeps_old_words_adds_frequent_new_ones_and_follows_the_domain(place: Path) -> None:
    parts = read_store(place / "run" / "model")
    vocab, coverage = adapt_vocabulary(parts, domain_run(place), 100, 5, 1)
    assert vocab[:3] == ["<S>", "</S>", "<UNK>"]
    assert set(parts.vocab) <= set(vocab)
    assert {f"v{k}" for k in range(6)} <= set(vocab)
    assert coverage.new_words == len(vocab) - len(parts.vocab)
    assert coverage.before < 0.7 < coverage.after == 1.0
    text = (place / "new.txt").read_text().split()
    counts = [text.count(word) for word in vocab[3:]]
    assert counts == sorted(counts, reverse=True)


def test_known_rows_are_kept_and_new_ones_lie_among_them(place: Path) -> None:
    parts = read_store(place / "run" / "model")
    source = build(parts)
    vocab = [*parts.vocab[:3], "w7x", *parts.vocab[3:]]
    model = adapt_model(parts, vocab)
    assert isinstance(model.head, SoftmaxHead)
    assert isinstance(source.head, SoftmaxHead)
    old = Vocabulary(parts.vocab)
    for number, word in enumerate(vocab):
        if word in old:
            torch.testing.assert_close(model.head.weight[number], source.head.weight[old.id(word)])
            torch.testing.assert_close(model.head.bias[number], source.head.bias[old.id(word)])
    new, rows = model.head.weight[3], source.head.weight
    assert bool(((new >= rows.min(dim=0).values) & (new <= rows.max(dim=0).values)).all())  # a mean of known rows
    for name, tensor in source.state_dict().items():
        if not name.startswith("head."):
            torch.testing.assert_close(model.state_dict()[name], tensor)


def test_fine_tuning_lowers_perplexity_in_the_new_domain_and_reports_both(place: Path, tmp_path: Path) -> None:
    parts = read_store(place / "run" / "model")
    run = domain_run(place, max_steps=60)
    result, report = finetune(parts, run, tmp_path, also=(str(place / "old_test.txt"),), num_workers=1)
    before, after = report["before"]["by_source"], report["after"]["by_source"]
    assert set(before) == {"new_test.txt", "old_test.txt"}
    assert after["new_test.txt"]["reset"]["mean"] < 0.6 * before["new_test.txt"]["reset"]["mean"]
    assert report["coverage"]["new_words"] == 6
    assert json.loads((tmp_path / "finetune.json").read_text())["after"] == report["after"]
    assert result.model is not None
    tuned = elmo.load(result.model)
    assert "v3" in tuned.vocab
    assert read_store(result.model).about["finetuned_from"]


def test_a_model_without_a_softmax_gets_one_that_learns_alone_first(place: Path, tmp_path: Path) -> None:
    parts: ModelParts = drop_head(read_store(place / "run" / "model"))
    kernel = parts.tensors["stacks.0.layers.0.kernel"].clone()
    result, report = finetune(parts, domain_run(place, max_steps=4, head_only_steps=4), tmp_path / "a", num_workers=1)
    assert report["before"] is None
    assert result.model is not None
    tuned = read_store(result.model)
    torch.testing.assert_close(tuned.tensors["stacks.0.layers.0.kernel"], kernel, atol=0, rtol=0)
    result, _ = finetune(parts, domain_run(place, max_steps=20), tmp_path / "b", num_workers=1)
    assert result.model is not None
    assert not torch.equal(read_store(result.model).tensors["stacks.0.layers.0.kernel"], kernel)


def test_the_command_line_fine_tunes_and_measures(place: Path, tmp_path: Path, capsys) -> None:
    text, model = str(place / "new.txt"), str(place / "run" / "model")
    done = elmo_inside(
        capsys, "finetune", model, text, "--heldout", str(place / "new_test.txt"), "--max-steps", "5", "--rows", "4",
        "--set", "train.steps=5", "--set", "objective.num_samples=16", "--workers", "1", "--device", "cpu",
        "--out", str(tmp_path / "out"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    measured = elmo_inside(
        capsys, "perplexity", str(tmp_path / "out" / "model"), str(place / "new_test.txt"), "--json", "--workers", "1",
        "--scores", str(tmp_path / "scores.jsonl"), "--device", "cpu",
    )  # fmt: skip
    found = json.loads(measured.stdout)
    assert found["reset"]["mean"] == pytest.approx(report["after"]["reset"]["mean"], rel=1e-5)
    assert "full softmax" in found["definition"]
    scores = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    mean = np.mean([value for row in scores for value in row["forward"]])
    assert found["reset"]["forward"] == pytest.approx(float(np.exp(-mean)), rel=1e-5)


def test_two_ways_to_measure_agree(place: Path, capsys) -> None:
    """The trainer's measure and the embedder's language model share no code; they must share the number."""
    model, text = str(place / "run" / "model"), place / "old_test.txt"
    lm = LanguageModel(elmo.load(model, tokenizer="whitespace", device="cpu"))
    expected = lm.perplexity(text.read_text().splitlines())
    done = elmo_inside(capsys, "perplexity", model, str(text), "--json", "--workers", "1", "--device", "cpu")
    found = json.loads(done.stdout)["reset"]
    assert found["forward"] == pytest.approx(expected.forward, rel=1e-5)
    assert found["backward"] == pytest.approx(expected.backward, rel=1e-5)
    assert found["mean"] == pytest.approx(expected.mean, rel=1e-5)
    assert found["predictions"] == expected.num_predictions


def test_a_report_reads_what_was_measured(place: Path, tmp_path: Path, capsys) -> None:
    model, texts = str(place / "run" / "model"), [str(place / name) for name in ("old_test.txt", "new_test.txt")]
    done = elmo_inside(capsys, "perplexity", model, *texts, "--json", "--workers", "1", "--device", "cpu")
    found = json.loads(done.stdout)
    (tmp_path / "found.json").write_text(done.stdout)
    assert elmo_inside(capsys, "report", str(tmp_path / "found.json"), "-o", str(tmp_path / "page")).returncode == 0
    page = (tmp_path / "page" / "README.md").read_text()
    for figures in (found, *found["by_source"].values()):
        assert f"{figures['reset']['mean']:.1f}" in page
    assert "elmo perplexity" in page
    assert str(place) not in page  # where a machine keeps its files is its own business


def test_a_model_that_reads_words_is_refused(place: Path, tmp_path: Path) -> None:
    pretrain(
        settings(place / "old.txt", {"model": {"chars": None, "words": {"num_words": 1, "word_dim": 6}}}), tmp_path
    )
    with pytest.raises(ConfigError, match="reads words"):
        finetune(read_store(tmp_path / "model"), domain_run(place), tmp_path / "out")
