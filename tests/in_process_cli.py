"""Runs the command line in the test's own process, which saves the seconds that a new process needs."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import pytest
import typer

from elmo.cli.hints import flags_of, missing_flags
from elmo.cli.main import app, main


class Done(NamedTuple):
    """The result of a run: exit code and printed text."""

    returncode: int
    stdout: str
    stderr: str


def run_in_process(capsys: Any, *arguments: str) -> Done:
    """Runs `elmo ARGUMENTS` in this process."""
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main(list(arguments))
    signal.signal(signal.SIGTERM, handler)
    printed = capsys.readouterr()
    _check_hint(printed.err, arguments)
    return Done(int(exit_info.value.code or 0), printed.out, printed.err)


def _check_hint(stderr: str, arguments: tuple[str, ...]) -> None:
    """A hint, the indented lines after an error, may name only flags that the command has."""
    group = typer.main.get_command(app)
    flags = flags_of(group, arguments)
    lines = stderr[stderr.find("elmo: ") :].splitlines() if "elmo: " in stderr else []
    for line in lines[1:]:
        if line.startswith("  "):
            assert not missing_flags(line, flags, group), line
