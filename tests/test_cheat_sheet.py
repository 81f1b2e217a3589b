"""The help of every command has groups and an example, docs/cheat-sheet.md is made from it, and shells complete it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from elmo.cli.help_groups import GROUPS, OTHER, UNGROUPED, group_of
from elmo.cli.main import app

ROOT = Path(__file__).parents[1]


def commands(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*words, name), command
        if hasattr(command, "list_commands"):
            yield from commands(command, *words, name)


ALL = dict(commands(typer.main.get_command(app)))
LEAVES = {words: command for words, command in ALL.items() if not hasattr(command, "list_commands")}


def flags(command: Any) -> list[str]:
    """The visible options of a command, in their long form."""
    shown = [item for item in command.params if item.param_type_name == "option" and not item.hidden]
    return [max(item.opts, key=len) for item in shown]


def help_of(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "elmo", *words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_tables_of_the_cheat_sheet_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_cheat_sheet.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_option_of_a_long_help_has_a_group(words: tuple[str, ...]) -> None:
    listed = flags(LEAVES[words])
    if len(listed) > UNGROUPED:
        missing = [flag for flag in listed if group_of(flag, words[0]) == OTHER]
        assert not missing, f"add {missing} to GROUPS in elmo/cli/help_groups.py"
        assert len({group_of(flag, words[0]) for flag in listed}) > 1


def test_the_help_of_a_long_command_prints_every_option_once_under_its_heading() -> None:
    sections = re.split(r"^(\S.*):\n", help_of("serve"), flags=re.M)[1:]
    printed = {
        heading: re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M)
        for heading, text in zip(sections[::2], sections[1::2], strict=True)
    }
    assert printed["Limits"][:3] == ["--queue-requests", "--queue-tokens", "--max-tokens"]
    assert printed["Computation"][:2] == ["--device", "--dtype"], "the precision, which `elmo embed` lists under Output"
    assert sorted(flag for own in printed.values() for flag in own) == sorted([*flags(LEAVES["serve",]), "--help"])


def test_the_help_of_device_is_the_same_in_every_command() -> None:
    texts = {item.help for command in LEAVES.values() for item in command.params if "--device" in item.opts}
    assert texts == {"Device: auto, cpu, cuda, cuda:1, mps. Default: auto."}


def test_a_short_help_has_one_list_of_options() -> None:
    assert "\nOptions:\n" in help_of("merge")
    assert "\nOutput:\n" not in help_of("merge")


def test_no_group_names_an_option_that_does_not_exist() -> None:
    known = {flag for words, command in LEAVES.items() for flag in flags(command)}
    named = {flag: flag.partition(" ") for own in GROUPS.values() for flag in own}
    assert [flag for flag, (plain, _, _) in named.items() if plain not in known] == []
    verbs = {verb for _, _, verb in named.values() if verb}
    assert verbs <= {words[0] for words in LEAVES}


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_an_example_that_it_accepts(words: tuple[str, ...]) -> None:
    """The options of the example exist, and no required argument is missing."""
    example = (ALL[words].epilog or "").removeprefix("Example: ")
    assert example.startswith(f"elmo {' '.join(words)}"), example
    given = shlex.split(example)[1:]
    path = tuple(given[:2]) if tuple(given[:2]) in LEAVES else tuple(given[:1])
    context = LEAVES[path].make_context("elmo", given[len(path) :], resilient_parsing=False)
    assert context.params


BASH = """
eval "$(elmo --show-completion bash)"
COMP_WORDS=({words}) COMP_CWORD={last}
_elmo_completion elmo
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [("elmo e", "embed export explore"), ("elmo task pre", "predict"), ("elmo embed --block", "--block-tokens")],
)
def test_bash_completes_verbs_and_options(words: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "elmo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m elmo "$@"\n')
    (tmp_path / "elmo").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",  # the name of the shell is an argument
    }
    script = BASH.format(words=words, last=words.count(" "))
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == expected.split(), done.stderr
