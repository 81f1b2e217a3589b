"""How far long work is: a live bar on a terminal, a plain line every few seconds elsewhere, nothing when not wanted.

Always on standard error, so that results on standard output stay clean.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class Progress:
    """Counts units of work; shows how many a second and, where the total is known, the time left.

    `show` None: only on a terminal. True: lines where there is no terminal. False: never.
    """

    def __init__(self, label: str, total: int | None, *, unit: str = "words", show: bool | None = None) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._live = show is not False and sys.stderr.isatty()
        self._lines = bool(show) and not self._live
        self._bar: Any = None
        self._task: Any = None
        self._start = self._said = time.monotonic()

    def __enter__(self) -> Progress:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
            console = Console(stderr=True)
            self._bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)
            self._task = self._bar.add_task(self.label, total=self.total, rate="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._lines and kind is None and self._said != self._start:
            self._say()

    def advance(self, amount: int) -> None:
        """`amount` more units are done."""
        self.done += amount
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, rate=f"{self.rate:,.0f} {self.unit}/s")
        elif self._lines and time.monotonic() - self._said >= 5.0:
            self._say()

    @property
    def rate(self) -> float:
        """Units a second since the start."""
        return self.done / max(time.monotonic() - self._start, 1e-9)

    def _say(self) -> None:
        self._said = time.monotonic()
        line = f"{self.label}: {self.done:,} {self.unit}, {self.rate:,.0f} {self.unit}/s"
        if self.total:
            line = f"{self.label}: {self.done:,} of {self.total:,} {self.unit}"
            if self.done >= self.total / 100:  # the first units wait for a whole window: they foretell nothing
                left = max(self.total - self.done, 0) / max(self.rate, 1e-9)
                line += f", {self.rate:,.0f}/s, {left:,.0f} s left"
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
