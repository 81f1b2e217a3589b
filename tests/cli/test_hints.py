"""Hints of errors: the flags that they name exist, for the command that prints them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

from elmo.cli.hints import EVERYWHERE, flags_of, usable_hint
from elmo.cli.main import VERBS, app
from elmo.weights.model_parts import ModelParts
from elmo.weights.store import save_store

ROOT = Path(__file__).parents[2]
GROUP = typer.main.get_command(app)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def all_flags() -> set[str]:
    flags = set(EVERYWHERE)
    for verb in VERBS:
        command = GROUP.get_command(None, verb)  # type: ignore[attr-defined]  # GROUP is a click Group
        flags |= flags_of(GROUP, [verb])
        for name in getattr(command, "commands", {}):
            flags |= flags_of(GROUP, [verb, name])
    return flags


def error_texts(path: Path) -> list[str]:
    """The string constants in calls of error classes, with their line."""
    texts = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_error = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error")
        for part in ast.walk(node) if is_error else ():
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                texts.append(f"{path.relative_to(ROOT)}:{part.lineno}: {part.value}")
    return texts


def test_every_flag_that_an_error_names_exists():
    known = all_flags()
    texts = [text for path in sorted((ROOT / "elmo").rglob("*.py")) for text in error_texts(path)]
    unknown = [text for text in texts if set(FLAG.findall(text)) - known]
    assert not unknown, "\n".join(unknown)
    assert any("--overwrite" in text for text in texts)


@pytest.mark.parametrize(
    ("command", "hint", "expected"),
    [
        ("convert a b", "The file is damaged. --allow-nonfinite accepts it.", None),
        ("embed a b", "The file is damaged. --allow-nonfinite accepts it.", "The file is damaged."),
        ("merge out", "Delete it and run elmo embed again with --resume.", None),
        ("task train ner", "Give --train FILE --dev FILE.", None),
        ("task predict run", "Give --train FILE --dev FILE.", ""),
        ("pretrain text", "a: 1 then, 2 now\n  Choose another folder. --overwrite replaces this one.",
         "a: 1 then, 2 now\n  Choose another folder."),
        ("", "Run elmo embed --help.", None),
        ("embed a b", "", None),
    ],
)  # fmt: skip
def test_a_hint_names_only_flags_that_the_command_has(command, hint, expected):
    assert usable_hint(hint, GROUP, command.split()) == (hint if expected is None else expected)


def test_only_commands_with_the_flag_suggest_to_accept_nonfinite_weights(tmp_path, capsys):
    parts = tiny_with_head()
    damaged = {name: tensor.clone() for name, tensor in parts.tensors.items()}
    next(iter(damaged.values())).view(-1)[0] = float("nan")
    save_store(tmp_path / "model", ModelParts(**{**vars(parts), "tensors": damaged}))
    (tmp_path / "text.txt").write_text("A cat sat .\n", encoding="utf-8")
    model, text = str(tmp_path / "model"), str(tmp_path / "text.txt")
    for command in (["embed", text, str(tmp_path / "o.npz"), "--model", model], ["geometry", text, "--model", model]):
        done = run_in_process(capsys, *command, "--device", "cpu")
        assert done.returncode == 1
        assert "diverged or the file is damaged" in done.stderr
        assert "--allow-nonfinite" not in done.stderr
    done = run_in_process(capsys, "convert", model, str(tmp_path / "out"), "--to", "hdf5")
    assert "--allow-nonfinite" in done.stderr


def test_bytes_that_are_not_utf8_suggest_replacement_only_where_it_is_possible(tmp_path, capsys):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 .\n")
    text = str(tmp_path / "latin.txt")
    done = run_in_process(capsys, "embed", text, str(tmp_path / "o.npz"), "--model", "tiny-random", "--device", "cpu")
    assert "--errors replace" in done.stderr
    out = ("--out", str(tmp_path / "run"))
    done = run_in_process(capsys, "task", "train", "ner", "--train", text, "--dev", text, "--device", "cpu", *out)
    assert "Convert the file to UTF-8." in done.stderr
    assert "--errors" not in done.stderr


@pytest.mark.parametrize("verb", ["perplexity", "info", "convert"])
def test_a_flag_with_the_name_of_an_argument_says_so(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    done = run_in_process(capsys, verb, "--model", "tiny-random", "in.txt")
    assert done.returncode == 2
    assert "the model is given without a flag" in done.stderr
    assert "Possible options" not in done.stderr


def test_pattern_that_the_shell_has_expanded_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_in_process(capsys, "embed", "corpus/a.txt", "corpus/b.txt", "vectors/")
    assert done.returncode == 2
    assert "Quote a pattern of files" in done.stderr
