"""Progress of long work on standard error: a terminal shows one changing line, a log gets a line every few seconds.

Standard output stays free for results.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType

LINE_SECONDS = 5.0  # between two lines where there is no terminal
REWRITE_SECONDS = 0.1  # between two states of the line on a terminal


class Progress:
    """Counts units of work; shows units per second and, where the total is known, the time left.

    `show` None: only on a terminal. True: on a terminal, or else as lines. False: never. Work that was done before, in
    an interrupted run, is set as `done`. The rate is explained at `Rate`.
    """

    def __init__(self, label: str, total: int | None, *, unit: str = "words", show: bool | None = None) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._rewrites = is_terminal and show is not False
        self._prints_lines = bool(show) and not is_terminal
        self._start = self._shown = time.monotonic()  # _shown: the time of the last line
        self._rate = Rate(self._start)
        self._on_terminal = False  # a text is on the terminal's line

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()
        if self._prints_lines and kind is None and self._shown != self._start:
            self._print_line(is_last=True)

    def advance(self, amount: int) -> None:
        """Adds `amount` units to those that are done."""
        now = time.monotonic()
        self._rate.observe(now, self.done)
        self.done += amount
        waited = now - self._shown
        if self._rewrites and waited >= REWRITE_SECONDS:
            self._rewrite(self._text())
        elif self._prints_lines and waited >= LINE_SECONDS:
            self._print_line()

    def hide(self) -> None:
        """Removes the terminal's line, so that another line can be printed; the next `advance` shows it again."""
        if self._on_terminal:
            self._rewrite("")

    def _text(self, *, is_last: bool = False) -> str:
        text = f"{self.label}: {self.done:,}" + (f" of {self.total:,}" if self.total else "") + f" {self.unit}"
        rate = self._rate.per_second(time.monotonic(), self.done)
        if not rate:
            return text
        text += f", {rate:,.0f}/s" if self.total else f", {rate:,.0f} {self.unit}/s"
        # the first units wait for a full batch: their rate predicts nothing
        if self.total and self.done >= self.total / 100 and not is_last:
            text += f", {format_duration(max(self.total - self.done, 0) / rate)} left"
        return text

    def _rewrite(self, text: str) -> None:
        """Replaces the terminal's line; an empty text leaves an empty line."""
        self._shown = time.monotonic()
        self._on_terminal = bool(text)
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{text[:width]:{width}}" + ("" if text else "\r"))
        sys.stderr.flush()

    def _print_line(self, *, is_last: bool = False) -> None:
        self._shown = time.monotonic()
        sys.stderr.write(self._text(is_last=is_last) + "\n")
        sys.stderr.flush()


class Rate:
    """Units per second of work that arrives in groups.

    Results often arrive in groups: a window of batches is computed for seconds, and then its sentences are counted
    within a moment. A group was computed before its first unit is counted, so the rate is measured from the start of
    the first group, and units count for the time before their group. The time before the first group is left out,
    because it includes set-up.
    """

    def __init__(self, start: float) -> None:
        self._start = self._last = start
        self._first: tuple[float, int] | None = None  # time of the first unit of the first group, and units before it
        self._group: tuple[float, int] | None = None  # the same of the current group
        self._after_first_group: int | None = None  # units

    def observe(self, now: float, done: int) -> None:
        """Units are about to be counted; `done` were before."""
        if self._first is None:
            self._first = self._group = now, done
        elif now - self._last >= REWRITE_SECONDS:
            self._group = now, done
            if self._after_first_group is None:
                self._after_first_group = done
        self._last = now

    def per_second(self, now: float, done: int) -> float | None:
        """The rate of the work so far; None if it is not known yet."""
        if self._first is None or self._group is None:
            return None
        first_time, first_done = self._first
        group_time, group_done = self._group
        if self._after_first_group is not None and now - group_time < group_time - first_time:
            # complete groups, or with a current group that is larger than the first one was
            return max(group_done - first_done, done - self._after_first_group) / (group_time - first_time)
        if now - first_time < max(first_time - self._start, REWRITE_SECONDS):
            return None  # all units so far may be of one group
        return (done - first_done) / (now - first_time)


def format_duration(seconds: float) -> str:
    """A duration as "12 s" below one minute, "3:20" (minutes) below one hour, or "2:03:20"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def approximate_duration(seconds: float) -> str:
    """An estimated duration, rounded as far as it is known: "40 s", "25 min", "2 h 10 min", "14 h", "3 days"."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    if round(seconds / 60) < 60:
        return f"{round(seconds / 60)} min"
    hours, minutes = divmod(10 * round(seconds / 600), 60)
    if hours < 10:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{round(seconds / 3600)} h" if seconds < 48 * 3600 else f"{round(seconds / 86400)} days"
