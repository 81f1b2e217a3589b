"""Pretraining and fine-tuning from Python: the same result as the jobs they wrap, from files and from lines."""

from __future__ import annotations

import functools
import importlib
import logging
from pathlib import Path
from typing import Any

import pytest
from tiny_run import MODEL, write_text

import elmo
from elmo.errors import ConfigError, DataError, OutputError

SECTIONS: dict[str, Any] = {
    "data": {"heldout": 0.05},
    "objective": {"num_samples": 16},
    "train": {"rows": 4, "steps": 5, "max_steps": 4, "device": "cpu"},
}


def test_a_model_is_trained_from_files_and_from_lines(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", 120)
    lines = text.read_text().splitlines()
    from_file = elmo.train_bilm(text, out=tmp_path / "a", model=MODEL, **SECTIONS)
    from_lines = elmo.train_bilm(lines=iter(lines), out=str(tmp_path / "b"), model=MODEL, **SECTIONS)
    assert (from_file.num_steps, from_file.stopped) == (4, "finished")
    assert from_file.model == tmp_path / "a" / "model"
    assert from_file.report is not None
    assert from_lines.report is not None
    assert from_file.report["perplexity"]["reset"] == from_lines.report["perplexity"]["reset"]
    assert from_lines.model is not None
    assert elmo.load(from_lines.model, device="cpu").perplexity(lines[:3]).num_words > 0
    resumed = elmo.train_bilm(lines=lines, out=tmp_path / "b", model=MODEL, **SECTIONS)
    assert resumed.num_steps == 4
    tuned = elmo.finetune_bilm(from_file.model, lines=lines[:60], out=tmp_path / "c", **SECTIONS)
    assert tuned.model is not None
    assert tuned.report is not None
    assert tuned.report["coverage"]["after"] >= tuned.report["coverage"]["before"]


def test_other_lines_do_not_replace_the_text_of_a_run(tmp_path: Path) -> None:
    lines = write_text(tmp_path / "text.txt", 120).read_text().splitlines()
    out = tmp_path / "run"
    elmo.train_bilm(lines=lines, out=out, model=MODEL, **SECTIONS)
    text = (out / "lines.txt").read_text()
    for train in (elmo.train_bilm, functools.partial(elmo.finetune_bilm, out / "model")):
        with pytest.raises(OutputError, match="was started with other lines"):
            train(lines=lines[::-1], out=out, **SECTIONS)
    assert (out / "lines.txt").read_text() == text
    assert elmo.train_bilm(lines=lines, out=out, model=MODEL, **SECTIONS).num_steps == 4


def test_lines_are_corrected_after_lines_that_could_not_be_prepared(tmp_path: Path) -> None:
    lines = write_text(tmp_path / "text.txt", 120).read_text().splitlines()
    with pytest.raises(DataError, match="no sentence"):
        elmo.train_bilm(lines=["", ""], out=tmp_path / "run", model=MODEL, **SECTIONS)
    assert elmo.train_bilm(lines=lines, out=tmp_path / "run", model=MODEL, **SECTIONS).num_steps == 4


def test_other_lines_do_not_replace_the_text_of_a_fine_tuning_interrupted_before_its_first_step(tmp_path: Path) -> None:
    lines = write_text(tmp_path / "text.txt", 120).read_text().splitlines()
    source = elmo.train_bilm(lines=lines, out=tmp_path / "source", model=MODEL, **SECTIONS).model
    settings = SECTIONS | {"data": {"heldout_files": [str(tmp_path / "text.txt")]}}
    tune = functools.partial(elmo.finetune_bilm, source, out=tmp_path / "run", **settings)

    def interrupt(line: str) -> None:
        if "before the training" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(lines=lines, say=interrupt)
    assert not (tmp_path / "run" / "data").exists()
    text = (tmp_path / "run" / "lines.txt").read_text()
    with pytest.raises(OutputError, match="was started with other lines"):
        tune(lines=lines[::-1])
    assert (tmp_path / "run" / "lines.txt").read_text() == text
    assert tune(lines=lines).num_steps == 4


def test_wrong_input_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for texts in ({}, {"files": ["a.txt"], "lines": ["a"]}, {"files": []}):
        with pytest.raises(ConfigError, match=r"either files or lines|No text files"):
            elmo.train_bilm(out=out, **texts)
    with pytest.raises(ConfigError, match="max_step"):
        elmo.train_bilm(lines=["a b"], out=out, train={"max_step": 3})
    assert not out.exists()
    with pytest.raises(DataError, match=r"lines\[1\] contains a line break"):
        elmo.train_bilm(lines=["a b", "c\nd"], out=out)
    with pytest.raises(TypeError, match="lines is a string"):
        elmo.train_bilm(lines="a b", out=out)
    assert not list(out.iterdir())


def test_the_package_of_the_training_code_can_still_be_imported() -> None:
    assert callable(elmo.train_bilm)
    assert importlib.import_module("elmo.pretrain.config").RECIPES
    assert elmo.pretrain.config.RECIPES


def test_a_model_remembers_the_tokenizer_of_its_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = write_text(tmp_path / "text.txt", 120)
    result = elmo.train_bilm(text, out=tmp_path / "run", tokenizer="whitespace", model=MODEL, **SECTIONS)
    assert result.model is not None
    with caplog.at_level(logging.WARNING):
        assert elmo.load(result.model, device="cpu").tokenizer_name == "whitespace"
        assert elmo.load(result.model, tokenizer="whitespace", device="cpu").tokenizer_name == "whitespace"
        assert not caplog.records
        assert elmo.load(result.model, tokenizer="default", device="cpu").tokenizer_name == "default"
        assert len(caplog.records) == 1
    tuned = elmo.finetune_bilm(result.model, text, out=tmp_path / "tuned", tokenizer="none", **SECTIONS)
    assert tuned.model is not None
    assert elmo.load(tuned.model, device="cpu").tokenizer_name == "whitespace"


def test_a_model_of_tokenised_text_has_the_default_tokenizer(tmp_path: Path) -> None:
    result = elmo.train_bilm(write_text(tmp_path / "text.txt", 120), out=tmp_path / "run", model=MODEL, **SECTIONS)
    assert result.model is not None
    assert elmo.load(result.model, device="cpu").tokenizer_name == "default"
