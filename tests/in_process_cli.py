"""Runs the command line in the test's own process, which saves the seconds that a new process needs."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import pytest

from elmo.cli.main import main


class Done(NamedTuple):
    """The result of a run: exit code and printed text."""

    returncode: int
    stdout: str
    stderr: str


def elmo_inside(capsys: Any, *arguments: str) -> Done:
    """Runs `elmo ARGUMENTS` in this process."""
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main(list(arguments))
    signal.signal(signal.SIGTERM, handler)
    printed = capsys.readouterr()
    return Done(int(exit_info.value.code or 0), printed.out, printed.err)
