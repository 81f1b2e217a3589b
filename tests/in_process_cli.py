"""The command line inside the test's own process: the same `main`, without the seconds a new one needs."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import pytest

from elmo.cli.main import main


class Done(NamedTuple):
    """What a run left: exit code and everything printed."""

    returncode: int
    stdout: str
    stderr: str


def elmo_inside(capsys: Any, *words: str) -> Done:
    """Runs `elmo WORDS` here."""
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(words))
    signal.signal(signal.SIGTERM, handler)
    printed = capsys.readouterr()
    return Done(int(end.value.code or 0), printed.out, printed.err)
