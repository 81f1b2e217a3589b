"""The next batches, made by threads while the device works; each with the place in the text that follows it.

One thread reads the stream, a second makes each batch ready for its step, so that both halves go on side by side.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from elmo.pretrain.data.stream import ContinuousStream, LMBatch

Ready = TypeVar("Ready")


class Prefetcher(Generic[Ready]):
    """Batches of a stream in order, a few ahead, made `ready`. The stream is the threads' until this is closed."""

    def __init__(self, stream: ContinuousStream, ready: Callable[[LMBatch], Ready], ahead: int = 3) -> None:
        self._stream, self._ready = stream, ready
        self._read: queue.Queue[Any] = queue.Queue(ahead)
        self._made: queue.Queue[Any] = queue.Queue(ahead)
        self._closed = threading.Event()
        stages = ((self._next_batch, self._read), (self._make_ready, self._made))
        self._threads = [
            threading.Thread(target=self._run, args=stage, daemon=True, name="elmo-batches") for stage in stages
        ]

    def __enter__(self) -> Prefetcher[Ready]:
        # the trainer needs the interpreter for a moment between long waits, and at once
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setswitchinterval(self._interval)
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def next(self) -> tuple[Ready, dict[str, Any]]:
        """A batch, made ready, and the stream's state after it; an error of the stream is raised here."""
        found = self._made.get()
        if isinstance(found, BaseException):
            raise found
        made: tuple[Ready, dict[str, Any]] = found
        return made

    def _next_batch(self) -> tuple[LMBatch, dict[str, Any]]:
        return next(self._stream), self._stream.state()

    def _make_ready(self) -> tuple[Ready, dict[str, Any]]:
        while not self._closed.is_set():
            try:
                found = self._read.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return self._ready(found[0]), found[1]
        raise queue.Empty

    def _run(self, make: Callable[[], Any], made: queue.Queue[Any]) -> None:
        while not self._closed.is_set():
            try:
                item = make()
            except Exception as error:  # handed on to the one who waits for the batch
                item = error
            while not self._closed.is_set():
                try:
                    made.put(item, timeout=0.2)
                    break
                except queue.Full:
                    continue
            if isinstance(item, BaseException):
                return
