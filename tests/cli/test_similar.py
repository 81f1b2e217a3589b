"""`elmo similar` on the command line: the files of a corpus, and words that a sentence has in another form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process_cli import run_in_process

QUERY = ("similar", "My cat slept .", "cat")


@pytest.mark.parametrize("corpus", ["tx", "tx/*.txt", "tx/[ab].txt"])
def test_the_corpus_may_be_a_folder_or_a_glob(
    corpus: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tx").mkdir()
    Path("tx/a.txt").write_text("The cat sat .\n")
    Path("tx/b.txt").write_text("A dog and a cat\n")
    Path("one.txt").write_text("The cat sat .\nA dog and a cat\n")
    records = []
    for name in (corpus, "one.txt"):
        done = run_in_process(capsys, *QUERY, name, "--model", "tiny-random", "--json")
        assert done.returncode == 0, done.stderr
        records.append(json.loads(done.stdout))
    assert records[0]["queries"] == records[1]["queries"]
    assert records[0]["corpus"]["sentences"] == 2
    assert len(records[0]["corpus"]["sha256"]) == 64
    assert run_in_process(capsys, *QUERY, "tx/*.text", "--model", "tiny-random").returncode == 1


@pytest.mark.parametrize(("word", "sentence", "reason"), [
    ("Bank", "the bank .", "'bank', which differs in case"),
    ("cafe\u0301", "a caf\u00e9 .", "'caf\u00e9', which differs in its Unicode form"),
])  # fmt: skip
def test_a_word_that_differs_only_in_form_is_named(
    word: str, sentence: str, reason: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "c.txt").write_text("The bank .\n")
    done = run_in_process(capsys, "similar", sentence, word, f"{tmp_path}/c.txt", "--model", "tiny-random")
    assert done.returncode == 1
    assert f"The sentence has {reason}" in done.stderr
