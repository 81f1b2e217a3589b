"""What the routes share: the settings, the model, the batcher, tokenizers, deadlines and the sentence bank."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from elmo.serve.api_error import ApiError
from elmo.serve.bank import SentenceBank
from elmo.serve.batcher import Batcher
from elmo.serve.jobs import Failure, Job, ModelInfo, Result
from elmo.serve.metrics import Metrics, process_gauges
from elmo.serve.settings import ServeSettings
from elmo.serve.texts import TextItem, read_texts
from elmo.text.tokenize import Tokenizer, tokenizer
from elmo.text.tokenizer_function import make_tokenizer

_LARGE = 20_000  # characters that are tokenised in a thread, so that the event loop goes on


class Service:
    """One server's parts; `app.make_app` gives them to the routes."""

    def __init__(self, settings: ServeSettings, batcher: Batcher, bank: SentenceBank | None) -> None:
        self.settings, self.batcher, self.bank = settings, batcher, bank
        self.is_draining = False  # after SIGTERM
        self._tokenizer = make_tokenizer(batcher.info.tokenizer)
        self._split_at_spaces = tokenizer("whitespace")
        queue = batcher.queue
        self.metrics.gauge("elmo_queue_requests", "Requests that wait for a worker.", lambda: queue.num_waiting)
        self.metrics.gauge("elmo_queue_tokens", "Tokens of all unfinished requests.", lambda: queue.num_tokens)
        self.metrics.gauge("elmo_workers", "Workers of this server.", lambda: len(batcher.workers))
        self.metrics.gauge("elmo_workers_healthy", "Workers that can take a batch.", batcher.num_healthy)
        process_gauges(self.metrics)

    @property
    def info(self) -> ModelInfo:
        return self.batcher.info

    @property
    def metrics(self) -> Metrics:
        return self.batcher.metrics

    async def read_texts(self, texts: Sequence[Any], *, tokenize: bool, field: str) -> list[TextItem | Failure]:
        """The texts of a request as tokens."""
        split: Tokenizer = self._tokenizer if tokenize else self._split_at_spaces
        limits = {"max_texts": self.settings.max_texts, "max_tokens": self.settings.max_tokens}
        if sum(len(text) for text in texts if isinstance(text, str)) < _LARGE:
            return read_texts(texts, split, field=field, **limits)
        return await asyncio.to_thread(read_texts, texts, split, field=field, **limits)

    async def run(self, job: Job, items: Sequence[TextItem | Failure], request: Request) -> list[Result | Failure]:
        """The results of the items, in their order; items that are failures already stay so."""
        sentences = [item.tokens for item in items if isinstance(item, TextItem)]
        results = iter(await self.batcher.run(job, sentences, deadline=self.deadline(request)))
        return [item if isinstance(item, Failure) else next(results) for item in items]

    def deadline(self, request: Request) -> float:
        """The time of the event loop at which a request has to be answered: X-Request-Timeout, or the server's own."""
        seconds = self.settings.timeout
        given = request.headers.get("x-request-timeout")
        if given is not None:
            try:
                wanted = float(given)
            except ValueError:
                wanted = math.nan
            if not wanted > 0:
                message = "X-Request-Timeout must be a number of seconds above 0."
                raise ApiError(400, "bad_timeout", message, field="X-Request-Timeout")
            seconds = min(seconds, wanted)
        return float(request.state.received) + seconds

    def check_top(self, top: int) -> None:
        if top > self.settings.max_top:
            raise ApiError(422, "invalid", f"top is {top}; at most {self.settings.max_top} is allowed.", field="top")

    def require_softmax(self) -> None:
        """Raises 404 if the model cannot score words."""
        if self.info.no_softmax is not None:
            raise ApiError(404, "no_softmax", self.info.no_softmax)


def checked_layer(layer: int, num_layers: int, field: str) -> int:
    """The number of a layer from 0; negative ones count from the top."""
    if not -num_layers <= layer < num_layers:
        raise ApiError(422, "invalid", f"{field} is {layer}; the model has layers 0 to {num_layers - 1}.", field=field)
    return layer % num_layers


def checked_weights(weights: Sequence[float], num_layers: int) -> tuple[float, ...]:
    """One finite weight per layer."""
    if len(weights) != num_layers:
        message = f"weights holds {len(weights)} numbers; the model has {num_layers} layers."
        raise ApiError(422, "invalid", message, field="weights")
    if not all(math.isfinite(w) and abs(w) <= 1e6 for w in weights):
        raise ApiError(422, "invalid", "weights must be between -1e6 and 1e6.", field="weights")
    return tuple(weights)
