"""`elmo perplexity` with text that is not valid in its encoding."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

from elmo.weights.store import save_store


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line for a model and a text with an invalid byte."""
    folder = tmp_path_factory.mktemp("perplexity")
    save_store(folder / "model", tiny_with_head())
    (folder / "text.txt").write_bytes(b"the cat sat\nthe \xff sat\n")
    return ["perplexity", str(folder / "model"), str(folder / "text.txt"), "--tokenizer", "none", "--workers", "1"]


def test_errors_other_than_strict_and_replace_are_refused(words: list[str], capsys) -> None:
    done = run_in_process(capsys, *words, "--errors", "skip")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--errors is 'skip'; expected strict or replace." in done.stderr


def test_the_command_of_the_record_measures_the_same_text(words: list[str], capsys) -> None:
    record = json.loads(run_in_process(capsys, *words, "--errors", "replace", "--json").stdout)
    command = shlex.split(record["command"])
    assert command[0] == "elmo"
    done = run_in_process(capsys, *command[1:], "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reset"] == record["reset"]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_replaced_bytes_are_counted_once_and_in_the_whole_text(
    suffix: str, words: list[str], tmp_path: Path, capsys, caplog: pytest.LogCaptureFixture
) -> None:
    content = b"the cat sat\n" * 250 + b"the \xff sat\n" * 3
    path = tmp_path / f"long{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == ".txt.gz" else content)
    for more in ([], ["--scores", str(tmp_path / "scores.jsonl")]):
        caplog.clear()
        done = run_in_process(capsys, *words[:2], str(path), *words[3:], "--errors", "replace", *more)
        assert done.returncode == 0, done.stderr
        (warning,) = [record.getMessage() for record in caplog.records if "not utf-8" in record.getMessage()]
        assert warning.startswith(f"{path}: 3 ")
