"""Progress: lines where there is no terminal, one rewritten line where there is."""

from __future__ import annotations

import sys
import time

import pytest

from elmo.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that `time.monotonic` gives, to be set by the test."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_shown_once_the_rate_predicts_it(capsys, clock):
    with Progress("embedding", 1000, show=True) as progress:
        for seconds, words in ((1, 1), (6, 1), (12, 498), (18, 500)):
            clock[0] = float(seconds)
            progress.advance(words)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "embedding: 2 of 1,000 words", "too few words to predict anything"
    assert lines[1] == "embedding: 500 of 1,000 words, 42/s, 12 s left"
    assert lines[2].startswith("embedding: 1,000 of 1,000 words, 56/s, 0 s left")


def test_nothing_is_shown_of_short_or_unwanted_work(capsys):
    for show in (True, False, None):
        with Progress("quick", 10, show=show) as progress:
            progress.advance(10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("show", [True, None])
def test_a_terminal_shows_one_line_that_is_rewritten_and_removed(capsys, monkeypatch, clock, show):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    with Progress("reading", None, show=show) as progress:
        for seconds in (1.0, 1.05, 2.0):  # the second is too soon to be shown
            clock[0] = seconds
            progress.advance(10)
    text = capsys.readouterr().err
    assert "\n" not in text
    states = text.split("\r")
    shown = [state.strip() for state in states[1:4]]
    assert shown == ["reading: 10 words, 10 words/s", "reading: 30 words, 15 words/s", ""]
    assert {len(state) for state in states[1:4]} == {59}, "each state covers the one before, and no line is full"


def test_a_terminal_without_cursor_gets_lines(capsys, monkeypatch, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with Progress("reading", None, show=True) as progress:
        clock[0] = 10.0
        progress.advance(10)
    assert capsys.readouterr().err.startswith("reading: 10 words, 1 words/s\n")
