"""`elmo score` on the command line: which text it reads, and what it says about doubtful input and empty lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

from elmo.weights.store import save_store


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_store(folder, tiny_with_head())
    return str(folder)


def test_a_text_and_a_file_are_not_scored_together(model: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.txt").write_text("It rained.\n")
    done = run_in_process(capsys, "score", "They sat.", "--file", f"{tmp_path}/in.txt", "--model", model)
    assert (done.returncode, done.stdout) == (2, "")
    assert "There are two inputs: the text 'They sat.' and --file" in done.stderr


def test_the_name_of_a_file_as_the_text_is_doubted(
    model: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("It rained.\n")
    run_in_process(capsys, "score", "other.txt", "--model", model)
    assert not caplog.records
    assert run_in_process(capsys, "score", "in.txt", "--model", model).returncode == 0
    assert "in.txt is a file" in caplog.text
    assert "--file reads the file" in caplog.text
    run_in_process(capsys, "task", "predict", "nowhere", "in.txt")
    assert len(caplog.records) == 2


def test_invalid_bytes_of_a_file_can_be_replaced(model: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.txt").write_bytes(b"caf\xe9 .\n")
    words = ["score", "--file", f"{tmp_path}/in.txt", "--model", model, "--json"]
    assert run_in_process(capsys, *words).returncode == 1
    done = run_in_process(capsys, *words, "--errors", "replace")
    assert json.loads(done.stdout)["tokens"] == ["caf", "\ufffd", "."]
    assert run_in_process(capsys, *words, "--errors", "ignore").returncode == 2


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["score", "--file", "IN"], "Put one sentence on each line."),
        (["embed", "IN", "OUT"], "--paragraphs"),
        (["embed", "IN", "-"], "--paragraphs"),
    ],
)
def test_a_line_of_a_thousand_tokens_is_doubted_once(
    command: list[str], advice: str, model: str, tmp_path: Path, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in.txt").write_text("Short.\n" + 2 * ("It rained in the town. " * 200 + "\n"))
    names = {"IN": f"{tmp_path}/in.txt", "OUT": f"{tmp_path}/out.npz"}
    words = [*(names.get(word, word) for word in command), "--model", model, "--tokenizer", "unicode"]
    assert run_in_process(capsys, *words).returncode == 0
    (warning,) = [record.getMessage() for record in caplog.records if "read as one sentence" in record.getMessage()]
    assert "line 2 has 1,200 tokens" in warning
    assert advice in warning
    caplog.clear()
    if command[0] == "embed":
        assert run_in_process(capsys, *words, "--paragraphs", "--overwrite").returncode == 0
        assert not caplog.records


def test_accents_as_separate_characters_give_one_warning(tmp_path: Path, model: str, capsys, caplog) -> None:
    for form, count in (("NFC", 0), ("NFD", 1)):
        path = tmp_path / "in.txt"
        path.write_text(normalize(form, "One .\nUn café fermé .\nLe café .\n"), encoding="utf-8")
        for words in (["score", "--file", str(path), "--model", model], ["perplexity", model, str(path)]):
            caplog.clear()
            done = run_in_process(capsys, *words)
            assert done.returncode == 0, done.stderr
            assert sum("(Unicode form NFD)" in record.message for record in caplog.records) == count, (words[0], form)


def test_empty_lines_have_no_number_that_wins_a_ranking(tmp_path: Path, model: str, capsys) -> None:
    (tmp_path / "in.txt").write_text("One .\n\n")
    words = ["score", "--file", str(tmp_path / "in.txt"), "--model", model]
    first, empty = map(json.loads, run_in_process(capsys, *words, "--json").stdout.splitlines())
    assert first["log_prob"] < 0
    assert (empty["tokens"], empty["log_prob"], empty["perplexity"]) == ([], None, None)
    assert "nan" in run_in_process(capsys, *words).stdout.splitlines()[1]
