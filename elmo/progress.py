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

    `show` None: only on a terminal. True: on a terminal, or else as lines. False: never.
    """

    def __init__(self, label: str, total: int | None, *, unit: str = "words", show: bool | None = None) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._rewrites = is_terminal and show is not False
        self._prints_lines = bool(show) and not is_terminal
        self._start = self._shown = time.monotonic()  # _shown: the time of the last line

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown == self._start:  # nothing was shown
            return
        if self._rewrites:
            self._rewrite("")
        elif kind is None:
            self._print_line()

    def advance(self, amount: int) -> None:
        """Adds `amount` units to those that are done."""
        self.done += amount
        waited = time.monotonic() - self._shown
        if self._rewrites and waited >= REWRITE_SECONDS:
            self._rewrite(self._text())
        elif self._prints_lines and waited >= LINE_SECONDS:
            self._print_line()

    @property
    def rate(self) -> float:
        """Units per second since the start."""
        return self.done / max(time.monotonic() - self._start, 1e-9)

    def _text(self) -> str:
        if not self.total:
            return f"{self.label}: {self.done:,} {self.unit}, {self.rate:,.0f} {self.unit}/s"
        text = f"{self.label}: {self.done:,} of {self.total:,} {self.unit}"
        if self.done >= self.total / 100:  # the first units wait for a full batch: their rate predicts nothing
            left = max(self.total - self.done, 0) / max(self.rate, 1e-9)
            text += f", {self.rate:,.0f}/s, {left:,.0f} s left"
        return text

    def _rewrite(self, text: str) -> None:
        """Replaces the terminal's line; an empty text leaves an empty line."""
        self._shown = time.monotonic()
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{text[:width]:{width}}" + ("" if text else "\r"))
        sys.stderr.flush()

    def _print_line(self) -> None:
        self._shown = time.monotonic()
        sys.stderr.write(self._text() + "\n")
        sys.stderr.flush()
