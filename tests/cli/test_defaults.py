"""Defaults and names that all verbs share: the tokenizer of a model, its spelling, pooled layers, run folders."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

import elmo
from elmo.compat.allennlp import Elmo, ElmoEmbedder, batch_to_ids
from elmo.compat.simple_elmo import ElmoModel
from elmo.errors import ConfigError, WeightsError
from elmo.weights.store import save_store

LINE = "Don't stop, it's the bank of the river.\n"  # 12 tokens by default, 8 by whitespace


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that records the tokenizer whitespace."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_store(folder, dataclasses.replace(tiny_with_head(), about={"tokenizer": "whitespace"}))
    return folder


@pytest.mark.parametrize(("arguments", "num_tokens"), [([], 8), (["--tokenizer", "default"], 12)])
def test_verbs_use_the_tokenizer_of_the_model(
    model: Path, arguments: list[str], num_tokens: int, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "text.txt").write_text(LINE)
    done = run_in_process(capsys, "score", LINE.strip(), "--model", str(model), "--json", *arguments)
    assert len(json.loads(done.stdout)["tokens"]) == num_tokens
    done = run_in_process(capsys, "perplexity", str(model), str(tmp_path / "text.txt"), "--json", *arguments)
    assert json.loads(done.stdout)["words"] == num_tokens
    done = run_in_process(capsys, "embed", str(tmp_path / "text.txt"), "-", "--model", str(model), *arguments)
    assert len(json.loads(done.stdout)["tokens"]) == num_tokens


def test_text_may_be_declared_tokenised(model: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "text.txt").write_text("the bank . The river .\n")
    words = {}
    for arguments in ([], ["--tokenizer", "none"]):
        done = run_in_process(capsys, "perplexity", str(model), str(tmp_path / "text.txt"), "--json", *arguments)
        assert done.returncode == 0, done.stderr
        words[len(arguments)] = json.loads(done.stdout)["reset"]["mean"]
    assert words[0] != words[2]  # two sentences of raw text, or one tokenised sentence


def test_info_shows_the_tokenizer_of_the_model(model: Path, capsys: Any) -> None:
    assert json.loads(run_in_process(capsys, "info", str(model), "--json").stdout)["tokenizer"] == "whitespace"
    assert json.loads(run_in_process(capsys, "info", "tiny-random", "--json").stdout)["tokenizer"] is None


def test_every_verb_accepts_both_spellings_of_tokenizer(model: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "text.txt").write_text(LINE)
    for spelling in ("--tokenizer", "--tokenize"):
        done = run_in_process(capsys, "score", "a b.", "--model", str(model), spelling, "default", "--json")
        assert json.loads(done.stdout)["tokens"] == ["a", "b", "."]
        done = run_in_process(capsys, "prepare", str(tmp_path / "text.txt"), "--check", f"{spelling}=default", "--json")
        assert json.loads(done.stdout)
    for verb in ("embed", "score", "similar", "geometry", "bench", "prepare", "pretrain", "finetune", "perplexity"):
        shown = run_in_process(capsys, verb, "--help").stdout
        assert "--tokenizer" in shown
        assert "--tokenize " not in shown


def test_pooled_vectors_of_embed_are_those_of_encode(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "text.txt").write_text("The cat sat.\n")
    arguments = ["embed", str(tmp_path / "text.txt"), "-", "--model", "tiny-random", "--pool", "mean"]
    expected = elmo.load("tiny-random", device="cpu").encode("The cat sat.")
    (line,) = run_in_process(capsys, *arguments, "--device", "cpu").stdout.splitlines()
    np.testing.assert_allclose(json.loads(line)["vectors"], expected, atol=1e-5)
    (line,) = run_in_process(capsys, *arguments, "--device", "cpu", "--layers", "all").stdout.splitlines()
    assert np.shape(json.loads(line)["vectors"]) == (3, *expected.shape)


def test_the_folder_of_a_run_stands_for_its_model(model: Path, tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    for name in ("checkpoints", "best", "data"):
        (run / name).mkdir(parents=True)
    (run / "config.toml").write_text("")
    with pytest.raises(WeightsError, match="no finished model yet"):
        elmo.load(run)
    shutil.copytree(model, run / "model")
    assert elmo.load(run, device="cpu").tokenizer_name == "whitespace"
    assert run_in_process(capsys, "score", "the bank", "--model", str(run)).returncode == 0


def test_drop_in_classes_take_the_name_of_a_model() -> None:
    tokens = ["The", "cat", "sat"]
    expected = elmo.load("tiny-random", device="cpu").layers([tokens])[0]
    np.testing.assert_allclose(ElmoEmbedder("tiny-random").embed_sentence(tokens), expected, atol=1e-5)
    vectors = Elmo("tiny-random", None, 1, dropout=0.0)(batch_to_ids([tokens]))["elmo_representations"][0]
    np.testing.assert_allclose(vectors.detach()[0], expected.mean(axis=0), atol=1e-5)
    simple = ElmoModel()
    simple.load("tiny-random")
    assert simple.get_elmo_vectors([tokens]).shape == (1, 3, expected.shape[-1])


@pytest.mark.parametrize("words", [["score", "a b"], ["perplexity", "MODEL", "text.txt"], ["embed", "text.txt", "-"]])
def test_a_misspelled_tokenizer_is_an_error_without_a_warning(
    model: Path, words: list[str], capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    words = [str(model) if word == "MODEL" else word for word in words]
    named = [] if str(model) in words else ["--model", str(model)]
    done = run_in_process(capsys, *words, *named, "--tokenizer", "whitspace")
    assert done.returncode == 2
    assert "Did you mean 'whitespace'" in done.stderr
    assert not caplog.records


def test_load_checks_the_name_of_the_tokenizer_before_it_warns(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="There is no tokenizer 'defalt'"):
        elmo.load(model, tokenizer="defalt")
    assert not caplog.records
