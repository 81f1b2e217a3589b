"""`elmo score` and `elmo perplexity`: warnings about the text, and empty lines."""

from __future__ import annotations

import json
from pathlib import Path
from unicodedata import normalize

import pytest
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

from elmo.weights.store import save_store


@pytest.fixture
def model(tmp_path: Path) -> str:
    save_store(tmp_path / "tiny", tiny_with_head())
    return str(tmp_path / "tiny")


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
