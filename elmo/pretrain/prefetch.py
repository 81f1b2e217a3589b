"""The next batches, made by a thread while the device works; each with the place in the text that follows it."""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Any

from elmo.pretrain.stream import ContinuousStream, LMBatch


class Prefetcher:
    """Batches of a stream in order, a few ahead. The stream belongs to the thread until this is closed."""

    def __init__(self, stream: ContinuousStream, ahead: int = 3) -> None:
        self._stream = stream
        self._queue: queue.Queue[tuple[LMBatch, dict[str, Any]] | BaseException] = queue.Queue(ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True, name="elmo-batches")

    def __enter__(self) -> Prefetcher:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._thread.join(timeout=10)

    def next(self) -> tuple[LMBatch, dict[str, Any]]:
        """A batch and the stream's state after it; an error of the stream is raised here."""
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def _fill(self) -> None:
        while not self._closed.is_set():
            item: tuple[LMBatch, dict[str, Any]] | BaseException
            try:
                item = (next(self._stream), self._stream.state())
            except Exception as error:  # handed to the one who waits for the batch
                item = error
            while not self._closed.is_set():
                try:
                    self._queue.put(item, timeout=0.2)
                    break
                except queue.Full:
                    continue
            if isinstance(item, BaseException):
                return
