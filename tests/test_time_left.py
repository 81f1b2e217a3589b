"""Progress lines of long operations without a terminal."""

from __future__ import annotations

import time

from elmo.progress import Progress


def test_the_time_left_is_shown_after_one_percent_of_the_work(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress("embedding", 1000, show=True) as progress:
        for seconds, words in ((1, 1), (6, 1), (12, 498), (18, 500)):
            now[0] = float(seconds)
            progress.advance(words)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "embedding: 2 of 1,000 words", "too little work is done for an estimate"
    assert lines[1] == "embedding: 500 of 1,000 words, 42/s, 12 s left"
    assert lines[2].startswith("embedding: 1,000 of 1,000 words, 56/s, 0 s left")


def test_short_or_hidden_work_prints_nothing(capsys):
    for show in (True, False, None):
        with Progress("quick", 10, show=show) as progress:
            progress.advance(10)
    assert capsys.readouterr().err == ""
