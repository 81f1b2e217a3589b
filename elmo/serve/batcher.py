"""The batcher: gives batches from the queue to idle workers, replaces workers that died, and answers requests.

A batch leaves as soon as a worker is idle. There is no waiting time: under load, batches grow by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from elmo.serve.api_error import ApiError
from elmo.serve.jobs import Failure, Job, ModelInfo, Result
from elmo.serve.metrics import Metrics
from elmo.serve.request_queue import QueuedItem, RequestQueue
from elmo.serve.workers import Worker, WorkerDied, WorkerLoadError

log = logging.getLogger(__name__)

_CHECK_S = 0.5  # how often an idle worker is checked
_LONGEST_PAUSE_S = 30.0  # between two attempts to start a worker


class Batcher:
    """Runs jobs on a pool of workers. `start` is called in the event loop, after the workers are ready."""

    def __init__(
        self, queue: RequestQueue, workers: Sequence[Worker], info: ModelInfo, metrics: Metrics, *, start_timeout: float
    ) -> None:
        self.queue, self.workers, self.info, self.metrics = queue, workers, info, metrics
        self._start_timeout = start_timeout
        self._threads = ThreadPoolExecutor(max_workers=len(workers), thread_name_prefix="elmo-worker")
        self._tasks: list[asyncio.Task[None]] = []
        self._new_work = asyncio.Event()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._drive(worker)) for worker in self.workers]

    async def stop(self) -> None:
        """Ends the workers. Requests that still run get no answer; the server has waited for them before."""
        for task in self._tasks:
            task.cancel()
        for worker in self.workers:
            await asyncio.to_thread(worker.stop)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def num_healthy(self) -> int:
        return sum(worker.is_healthy() for worker in self.workers)

    async def run(
        self, job: Job, sentences: Sequence[Sequence[str]], *, deadline: float | None
    ) -> list[Result | Failure]:
        """One result or failure per sentence. Raises ApiError 429 if the queue is full, 504 at the deadline.

        `deadline` is in the event loop's time; None is for the server's own requests. If the caller is cancelled, what
        was not computed yet is dropped.
        """
        if not sentences:
            return []
        request = self.queue.enter(job, sentences, is_internal=deadline is None)
        try:
            self._new_work.set()
            left = None if deadline is None else deadline - asyncio.get_running_loop().time()
            await asyncio.wait_for(request.done.wait(), left)
            return list(request.results)
        except asyncio.TimeoutError:
            raise ApiError(504, "deadline_exceeded", "The deadline of the request passed before its result.") from None
        finally:
            self.queue.leave(request)

    async def _drive(self, worker: Worker) -> None:
        """The life of one worker: batches, and a new process when the old one is gone."""
        while True:
            if worker.must_be_replaced():
                await self._restart(worker)
            batch = await self._next_batch()
            if batch:
                await self._run_batch(worker, batch)

    async def _next_batch(self) -> list[QueuedItem]:
        """The next batch, or nothing after a moment, so that an idle worker is checked from time to time."""
        if batch := self.queue.take_batch():
            return batch
        self._new_work.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._new_work.wait(), _CHECK_S)
        return self.queue.take_batch()

    async def _run_batch(self, worker: Worker, batch: list[QueuedItem]) -> None:
        num_tokens = sum(item.num_tokens for item in batch)
        begin = time.monotonic()
        try:
            results = await asyncio.get_running_loop().run_in_executor(
                self._threads, worker.run, batch[0].job, [item.tokens for item in batch]
            )
        except WorkerDied:
            log.warning("worker %d ended during a batch of %d texts; it is replaced", worker.number, len(batch))
            self._after_death(batch)
            return
        seconds = time.monotonic() - begin
        self.queue.record_batch(num_tokens, seconds, len(self.workers))
        self.metrics.observe_batch(batch[0].job.operation, len(batch), num_tokens, seconds)
        for item, result in zip(batch, results, strict=True):
            _answer(item, result)

    def _after_death(self, batch: list[QueuedItem]) -> None:
        """One sentence of the batch may have killed the worker: each runs alone once; if it did so alone, it fails."""
        if len(batch) > 1:
            self.queue.return_suspects(batch)
            self._new_work.set()
        else:
            message = "The worker process ended while it computed this text. Send it again once, or leave it out."
            _answer(batch[0], Failure(503, "worker_died", message))

    async def _restart(self, worker: Worker) -> None:
        """Replaces a worker; after a failure again, with growing pauses."""
        pause = 0.5
        while True:
            await asyncio.to_thread(worker.stop)
            self.metrics.count("elmo_worker_restarts_total")
            try:
                await asyncio.to_thread(self._start_and_wait, worker)
                return
            except (WorkerDied, WorkerLoadError, OSError) as error:
                log.error("worker %d cannot start (%s); the next attempt is in %.1f s", worker.number, error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _start_and_wait(self, worker: Worker) -> None:
        worker.start()
        worker.wait_until_ready(self._start_timeout)


def _answer(item: QueuedItem, result: Any) -> None:
    request = item.request
    request.results[item.index] = result
    request.num_pending -= 1
    if request.num_pending == 0:
        request.done.set()
