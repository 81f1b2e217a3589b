"""Validations and checkpoints by time, beside those after a number of steps, so that slow runs have them too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

MAX_SHARE = 0.2  # of the time may be spent on what a timer starts, however short the interval is


class Timer:
    """Says when something that takes time itself is due again: `minutes` after its last end, or never with None.

    Something that took long is due later, so that it takes at most a fifth of the time.
    """

    def __init__(self, minutes: float | None) -> None:
        self._interval = None if minutes is None else 60 * minutes
        self._last_end = time.monotonic()
        self._last_duration = 0.0

    def is_due(self) -> bool:
        """Whether the interval has passed since the last end, or since the timer was made."""
        if self._interval is None:
            return False
        wait = max(self._interval, self._last_duration * (1 / MAX_SHARE - 1))
        return time.monotonic() - self._last_end >= wait

    @contextmanager
    def running(self) -> Iterator[None]:
        """The thing happens inside this context, whatever started it."""
        start = time.monotonic()
        yield
        self._last_end = time.monotonic()
        self._last_duration = self._last_end - start
