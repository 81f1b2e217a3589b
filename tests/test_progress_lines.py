"""Progress: lines where there is no terminal, one rewritten line where there is."""

from __future__ import annotations

import os
import re
import select
import sys
import time

import pytest

from elmo.progress import Progress, format_duration


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that `time.monotonic` gives, to be set by the test."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_shown_once_the_rate_predicts_it(capsys, clock):
    with Progress("embedding", 1000, show=True) as progress:
        for seconds, words in ((7, 2), (12, 3), (17, 495), (22, 250), (23, 250)):
            clock[0] = float(seconds)
            progress.advance(words)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "embedding: 2 of 1,000 words", "set-up and the first batch: no rate yet"
    assert lines[1] == "embedding: 5 of 1,000 words, 1/s", "too few words to predict anything"
    assert lines[2] == "embedding: 500 of 1,000 words, 50/s, 10 s left", "498 words in 10 seconds after the first"
    assert lines[3] == "embedding: 750 of 1,000 words, 50/s, 5 s left"
    assert lines[4:] == ["embedding: 1,000 of 1,000 words, 62/s"]


def test_work_of_an_interrupted_run_does_not_count_as_fast(capsys, clock):
    """The time left was 1 second instead of 40: 900 words were done before, and the rate counted them."""
    with Progress("epoch 1 of 1", 1000, unit="examples", show=True) as progress:
        progress.done = 900
        for seconds in (4, 8, 12):
            clock[0] = float(seconds)
            progress.advance(10)
    assert "epoch 1 of 1: 920 of 1,000 examples, 2/s, 32 s left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (200, "3:20"), (7400, "2:03:20")]
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text


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
    assert shown == ["reading: 10 words", "reading: 30 words, 20 words/s", ""]
    assert {len(state) for state in states[1:4]} == {59}, "each state covers the one before, and no line is full"


def test_a_terminal_without_cursor_gets_lines(capsys, monkeypatch, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with Progress("reading", None, show=True) as progress:
        for seconds in (10.0, 20.0):
            clock[0] = seconds
            progress.advance(10)
    assert capsys.readouterr().err.startswith("reading: 10 words\nreading: 20 words, 1 words/s\n")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal (POSIX)")
def test_time_left_on_a_pseudo_terminal_is_right_for_recorded_clocks(monkeypatch, clock):
    """A recorded run: 10 seconds of set-up, then every 8 seconds a window of 1,000 words arrives within a moment."""
    terminal, child = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    shown = []  # (time, text) of each state of the line
    with open(child, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with Progress("embedding", 6000) as progress:
            for window in range(6):
                for sentence in range(50):
                    clock[0] = 10.0 + 8 * (window + 1) + 0.004 * sentence
                    progress.advance(20)
                    if select.select([terminal], [], [], 0)[0]:
                        shown.append((clock[0], os.read(terminal, 1000).decode().strip()))
            end = clock[0]
            progress.hide()
        assert os.read(terminal, 1000).decode().strip() == ""
    os.close(terminal)
    predictions = [(now, int(match[1])) for now, text in shown if (match := re.search(r"(\d+) s left", text))]
    assert len(predictions) >= 5
    for now, left in predictions:
        # a window is counted when it arrives, so it may be predicted once more
        assert end - now - 1 <= left <= end - now + 8 + 1, (now, left, end)
