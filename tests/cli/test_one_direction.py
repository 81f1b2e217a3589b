"""A model with the forward direction only through the commands: pretraining, perplexity and scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from in_process_cli import run_in_process
from tiny_run import settings, write_text

from elmo.pretrain.job import pretrain


@pytest.fixture(scope="module")
def one_direction(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model folder and a text."""
    folder = tmp_path_factory.mktemp("one_direction")
    text = write_text(folder / "text.txt", 60)
    result = pretrain(
        settings(text, {"model": {"bidirectional": False}, "train": {"max_steps": 4}}), folder / "run", num_workers=1
    )
    assert result.model is not None
    assert result.report is not None
    assert result.report["perplexity"]["reset"]["backward"] is None
    return result.model, text


def test_perplexity_and_scores_agree(one_direction: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    model, text = map(str, one_direction)
    done = run_in_process(
        capsys, "perplexity", model, text, "--json", "--workers", "1", "--device", "cpu",
        "--scores", str(tmp_path / "scores.jsonl"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reset = json.loads(done.stdout)["reset"]
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert {row["backward"] for row in rows} == {None}
    mean = np.concatenate([row["forward"] for row in rows]).mean()
    assert reset["forward"] == reset["mean"] == pytest.approx(np.exp(-mean), rel=1e-5)
    assert reset["backward"] is None


def test_commands_print_a_table_without_backward_numbers(one_direction: tuple[Path, Path], capsys) -> None:
    model, text = map(str, one_direction)
    done = run_in_process(capsys, "perplexity", model, text, "--workers", "1", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert " - " in done.stdout.splitlines()[1]
    done = run_in_process(capsys, "score", "w1 w2 w3", "--model", model, "--tokens", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
    done = run_in_process(capsys, "score", "w1 w2", "--model", model, "--json", "--substitutes", "2", "--device", "cpu")
    assert json.loads(done.stdout)["backward"] is None
    assert [len(words) for words in json.loads(done.stdout)["substitutes"]] == [2, 2]
