"""Folders as text: which of their files are read, and what the commands say about the others."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from in_process_cli import run_in_process
from tiny_run import command, run, train_settings, write_text

from elmo.errors import DataError
from elmo.pretrain.data.sources import find_sources, list_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with four text files of 300 sentences in all, and others."""
    corpus = tmp_path / "corpus"
    (corpus / "more").mkdir(parents=True)
    lines = write_text(tmp_path / "text.txt").read_text().splitlines(keepends=True)
    (corpus / "b.txt").write_text("".join(lines[:100]))
    (corpus / "more" / "a.txt").write_text("".join(lines[100:200]))
    (corpus / "C.TXT").write_text("".join(lines[200:250]))
    (corpus / "d.txt.gz").write_bytes(gzip.compress("".join(lines[250:]).encode()))
    for name in ("paper.pdf", "more/table.csv", ".hidden.txt", "e.gz"):
        (corpus / name).write_bytes(b"not text")
    (corpus / ".git").mkdir()
    (corpus / ".git" / "f.txt").write_text("hidden\n")
    return corpus


def test_a_folder_stands_for_its_text_files_sorted_and_without_hidden_ones(folder: Path) -> None:
    names = ["C.TXT", "b.txt", "d.txt.gz", "more/a.txt"]
    assert [source.path for source in find_sources([folder])] == [str(folder / name) for name in names]
    assert list_folder(str(folder)).ignored == ["e.gz", "more/table.csv", "paper.pdf"]
    assert list_folder(str(folder)).num_hidden == 2


def test_a_folder_without_text_files_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    (tmp_path / "paper.pdf").write_bytes(b"")
    with pytest.raises(DataError, match=r"has no text files") as error:
        find_sources([tmp_path])
    assert "paper.pdf" in error.value.hint


def test_links_to_folders_are_named_and_not_followed(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    assert len(find_sources([folder])) == 4
    assert "loop" in list_folder(str(folder)).ignored


def test_a_run_beside_its_text_is_not_text(folder: Path) -> None:
    """The vocabulary of the run and of its model are .txt files, too: the second call would have found other text."""
    out = folder / "run"
    run(folder, out, train_settings(max_steps=2))
    assert list(out.rglob("*.txt"))
    result = run(folder, out, train_settings(max_steps=3))
    assert result.train.step == 3
    shutil.copytree(out / "model", folder / "a-model")
    shutil.copytree(out / "data", folder / "prepared")
    assert len(find_sources([folder])) == 4
    assert {"run/", "a-model/", "prepared/"} <= set(list_folder(str(folder)).ignored)


def test_a_run_itself_is_not_a_folder_of_text(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (tmp_path / "model" / name).write_text("word\n", encoding="utf-8")
    with pytest.raises(DataError, match="is a run, a model or prepared text"):
        find_sources([tmp_path / "model"])


def test_commands_take_a_folder_and_say_what_they_ignore(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    said = f"{folder}: 4 text files (.txt, also .gz .bz2 .xz .zst); ignored: e.gz, more/table.csv, paper.pdf; 2 hidden"
    done = run_in_process(capsys, *command(folder, tmp_path / "run", "--max-steps", "4")[3:])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(said) == 1
    model = str(tmp_path / "run" / "model")
    small = ["--rows", "4", "--set", "train.steps=5", "--set", "objective.num_samples=16", "--max-steps", "2"]
    out = ["--out", str(tmp_path / "tuned"), "--device", "cpu", "--workers", "1"]
    done = run_in_process(capsys, "finetune", model, str(folder), *out, *small)
    assert (done.returncode, done.stderr.count(said)) == (0, 1), done.stderr
    done = run_in_process(capsys, "prepare", str(folder), "--out", str(tmp_path / "data"), "--workers", "1", "--json")
    assert (done.returncode, done.stderr.count(said)) == (0, 1), done.stderr
    facts = json.loads(done.stdout)
    assert facts["sentences"] + facts["heldout_sentences"] == 300
    done = run_in_process(capsys, "perplexity", model, str(folder), "--workers", "1", "--json")
    assert (done.returncode, done.stderr.count(said)) == (0, 1), done.stderr
    assert len(json.loads(done.stdout)["by_source"]) == 4
    done = run_in_process(capsys, *command(folder, tmp_path / "none", "--dry-run")[3:])
    assert (done.returncode, done.stderr.count(said)) == (0, 1), done.stderr
