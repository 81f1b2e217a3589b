"""SIGINT (Ctrl-C) and SIGTERM during training: the run finishes its current step and saves before it stops."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """Catches the first SIGINT or SIGTERM; a second one has its usual effect at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # Python allows no handlers in other threads
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore_handlers()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}
