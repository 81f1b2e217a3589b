"""Prefetching of batches in background threads while the device trains, each with the stream's position after it.

One thread reads the stream and a second one prepares each batch for its step, so that both run in parallel.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from elmo.errors import ElmoError
from elmo.pretrain.data.stream import ContinuousStream, LMBatch

CLOSE_TIMEOUT = 10  # seconds for which a closed prefetcher waits for each thread

Prepared = TypeVar("Prepared")


class Prefetcher(Generic[Prepared]):
    """The batches of a stream in order, each passed through `prepare`, up to `queue_size` ahead per thread.

    Only the background threads may use the stream until the prefetcher is closed.
    """

    def __init__(self, stream: ContinuousStream, prepare: Callable[[LMBatch], Prepared], queue_size: int = 3) -> None:
        self._stream, self._prepare = stream, prepare
        self._batches: queue.Queue[Any] = queue.Queue(queue_size)
        self._prepared: queue.Queue[Any] = queue.Queue(queue_size)
        self._closed = threading.Event()
        stages = ((self._read_batch, self._batches), (self._prepare_batch, self._prepared))
        self._threads = [
            threading.Thread(target=self._run, args=stage, daemon=True, name="elmo-batches") for stage in stages
        ]

    def __enter__(self) -> Prefetcher[Prepared]:
        # the training thread needs the interpreter only briefly between long waits, but then without delay
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setswitchinterval(self._switch_interval)
        self._closed.set()
        for thread in self._threads:
            thread.join(timeout=CLOSE_TIMEOUT)

    def require_ended(self) -> None:
        """Raises ElmoError if a thread still uses the stream after the prefetcher was closed.

        The stream must not be moved then: its position would be that of neither.
        """
        if any(thread.is_alive() for thread in self._threads):
            raise ElmoError(
                f"A background thread still reads text {CLOSE_TIMEOUT} s after it was told to end, and the run cannot "
                "return to a checkpoint meanwhile.",
                "The disk may be slow or unavailable. The same command continues from the last checkpoint.",
            )

    def next(self) -> tuple[Prepared, dict[str, Any]]:
        """The next prepared batch and the stream's state after it; raises the errors of the background threads."""
        item = self._prepared.get()
        if isinstance(item, BaseException):
            raise item
        batch_and_state: tuple[Prepared, dict[str, Any]] = item
        return batch_and_state

    def _read_batch(self) -> tuple[LMBatch, dict[str, Any]]:
        return next(self._stream), self._stream.state()

    def _prepare_batch(self) -> tuple[Prepared, dict[str, Any]]:
        while not self._closed.is_set():
            try:
                item = self._batches.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(item, BaseException):
                raise item
            batch, stream_state = item
            return self._prepare(batch), stream_state
        raise queue.Empty

    def _run(self, produce: Callable[[], Any], output: queue.Queue[Any]) -> None:
        """Puts the items of one stage into its queue until the prefetcher is closed or an error occurs."""
        while not self._closed.is_set():
            try:
                item = produce()
            except Exception as error:  # `next` raises it in the training thread
                item = error
            while not self._closed.is_set():
                try:
                    output.put(item, timeout=0.2)
                    break
                except queue.Full:
                    continue
            if isinstance(item, BaseException):
                return
