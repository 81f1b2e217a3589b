"""The bounded queue: requests enter with all their sentences, and batches of sentences with equal jobs leave it.

It holds plain data and is used from the event loop only. The oldest sentence always goes first, so that no job starves;
the batch is filled with later sentences of the same job.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from elmo.serve.api_error import ApiError
from elmo.serve.jobs import Failure, Job, Result

_FIRST_RATE = 2000.0  # tokens per second, until the first batch is measured


@dataclass(eq=False)
class QueuedRequest:
    """The sentences of one request and the results so far."""

    num_tokens: int
    results: list[Result | Failure | None]
    num_waiting: int  # sentences that no worker has taken
    num_pending: int  # sentences without a result
    cancelled: bool = False  # its client is gone or its deadline has passed: what waits is not computed
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class QueuedItem:
    """One sentence of a request."""

    request: QueuedRequest
    index: int  # in the request
    job: Job
    tokens: Sequence[str]
    sequence: int  # order of arrival
    alone: bool = False  # its batch killed a worker: it runs alone now, because it may be the cause

    @property
    def num_tokens(self) -> int:
        return max(1, len(self.tokens))


class RequestQueue:
    """Bounded by the number of waiting requests and by the tokens of all unfinished requests."""

    def __init__(self, *, max_requests: int, max_tokens: int, batch_tokens: int, batch_texts: int) -> None:
        self._max_requests, self._max_tokens = max_requests, max_tokens
        self._batch_tokens, self._batch_texts = batch_tokens, batch_texts
        self._by_job: dict[Job, deque[QueuedItem]] = {}
        self._suspects: deque[QueuedItem] = deque()
        self._sequence = 0
        self._rate = _FIRST_RATE  # tokens per second of all workers together, a moving average
        self.num_waiting = 0  # requests with sentences that no worker has taken
        self.num_tokens = 0  # of all unfinished requests

    def enter(self, job: Job, sentences: Sequence[Sequence[str]], *, is_internal: bool = False) -> QueuedRequest:
        """Queues a request, or raises ApiError 429 if the queue is full. The server's own requests always enter."""
        num_tokens = sum(max(1, len(sentence)) for sentence in sentences)
        is_full = self.num_waiting >= self._max_requests or (
            self.num_tokens > 0 and self.num_tokens + num_tokens > self._max_tokens
        )
        if is_full and not is_internal:
            raise ApiError(
                429, "overloaded", "The queue is full. Send the request again later.", retry_after=self.retry_after()
            )
        request = QueuedRequest(num_tokens, [None] * len(sentences), len(sentences), len(sentences))
        self.num_tokens += num_tokens
        self.num_waiting += bool(sentences)
        waiting = self._by_job.setdefault(job, deque())
        for index, tokens in enumerate(sentences):
            waiting.append(QueuedItem(request, index, job, tokens, self._sequence))
            self._sequence += 1
        return request

    def leave(self, request: QueuedRequest) -> None:
        """Ends a request, answered or not; sentences that still wait will not be computed."""
        request.cancelled = True
        self.num_tokens -= request.num_tokens
        self.num_waiting -= request.num_waiting > 0
        request.num_waiting = 0

    def take_batch(self) -> list[QueuedItem]:
        """The next batch: the oldest sentence and others with the same job; empty if nothing waits."""
        while self._suspects:
            suspect = self._suspects.popleft()
            if not suspect.request.cancelled:
                return [self._taken(suspect)]
        self._drop_cancelled()
        if not self._by_job:
            return []
        job = min(self._by_job, key=lambda j: self._by_job[j][0].sequence)
        waiting = self._by_job[job]
        batch: list[QueuedItem] = []
        num_tokens = 0
        while waiting and len(batch) < self._batch_texts:
            item = waiting[0]
            if batch and num_tokens + item.num_tokens > self._batch_tokens:
                break
            waiting.popleft()
            if not item.request.cancelled:
                num_tokens += item.num_tokens
                batch.append(self._taken(item))
        if not waiting:
            del self._by_job[job]
        return batch

    def return_suspects(self, items: Sequence[QueuedItem]) -> None:
        """Queues the sentences of a batch that killed a worker again, each for its own batch, before all others."""
        for item in items:
            item.alone = True
            item.request.num_waiting += 1
            self.num_waiting += item.request.num_waiting == 1 and not item.request.cancelled
            self._suspects.append(item)

    def record_batch(self, num_tokens: int, seconds: float, num_workers: int) -> None:
        """Updates the rate by which `retry_after` estimates the waiting time."""
        rate = num_workers * num_tokens / max(seconds, 1e-3)
        self._rate += 0.2 * (rate - self._rate)

    def retry_after(self) -> int:
        """Whole seconds in which the present queue will probably be done, 1 to 60."""
        return min(60, max(1, math.ceil(self.num_tokens / self._rate)))

    def _taken(self, item: QueuedItem) -> QueuedItem:
        item.request.num_waiting -= 1
        self.num_waiting -= item.request.num_waiting == 0
        return item

    def _drop_cancelled(self) -> None:
        for job in list(self._by_job):
            waiting = self._by_job[job]
            while waiting and waiting[0].request.cancelled:
                waiting.popleft()
            if not waiting:
                del self._by_job[job]
