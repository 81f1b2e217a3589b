"""The worker process: it loads the model and answers batches until the pipe to the front process closes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from elmo.embed.embedder import Embedder
from elmo.embed.lm import LanguageModel
from elmo.embed.lm_results import Substitute
from elmo.errors import ElmoError, WeightsError
from elmo.serve.jobs import Failure, Job, LoadFailure, ModelInfo, Result
from elmo.serve.model_source import LoadEmbedder

HEARTBEAT_S = 0.5


def worker_main(requests: Connection, heartbeat: Connection, load_embedder: LoadEmbedder, num_threads: int) -> None:
    """Runs in a process of its own. Signals to the whole process group do not stop it: the front process decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_beat, args=(heartbeat,), daemon=True).start()
    logging.getLogger("elmo.text.surrogates").setLevel(logging.ERROR)  # clients see U+FFFD in their tokens
    torch.set_num_threads(num_threads)
    with contextlib.suppress(EOFError, ConnectionError):  # the front process has ended
        _serve(requests, load_embedder)


def _serve(requests: Connection, load_embedder: LoadEmbedder) -> None:
    try:
        model = ServedModel(load_embedder())
        model.compute(Job(operation="vectors"), [["Warm", "up", "."]])  # lays out weights, compiles kernels
    except ElmoError as error:
        requests.send(LoadFailure(error.message, error.hint, error.exit_code))
        return
    requests.send(model.info())
    while True:
        job, sentences = requests.recv()
        requests.send(model.answer(job, sentences))


class ServedModel:
    """An embedder that computes jobs; a sentence that fails gets a Failure and does not affect the others."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._lm: LanguageModel | None = None
        self._no_softmax: str | None = None
        try:
            self._lm = LanguageModel(embedder)
        except WeightsError as error:
            self._no_softmax = error.message

    def info(self) -> ModelInfo:
        return ModelInfo(
            name=self.embedder.name,
            dim=self.embedder.dim,
            num_layers=self.embedder.num_layers,
            tokenizer=self.embedder.tokenizer_name,
            device=str(self.embedder.device),
            dtype=self.embedder.dtype,
            executor=self.embedder.executor_name,
            num_threads=torch.get_num_threads(),
            no_softmax=self._no_softmax,
            vocab_size=None if self._lm is None else len(self._lm.vocab),
        )

    def answer(self, job: Job, sentences: Sequence[Sequence[str]]) -> list[Result | Failure]:
        """One result or failure per sentence. A batch that fails is halved until the cause is alone."""
        try:
            return self.compute(job, sentences)
        except Exception as error:
            if len(sentences) == 1:
                return [_failure(error)]
        middle = len(sentences) // 2
        return self.answer(job, sentences[:middle]) + self.answer(job, sentences[middle:])

    def compute(self, job: Job, sentences: Sequence[Sequence[str]]) -> list[Result | Failure]:
        """One result per sentence; raises what the model raises."""
        if job.operation == "vectors":
            stream = self.embedder.stream(sentences, layers=job.layers)
            return [_checked(_stacked(vectors, job.rows)) for vectors in stream]
        if job.operation == "pooled":
            groups = self.embedder.pooled(sentences, layers=job.layers, pooling=job.pooling)
            return [_checked(vector.astype(np.float32, copy=False)) for group, _ in groups for vector in group]
        if self._lm is None:
            return [Failure(404, "no_softmax", self._no_softmax or "")] * len(sentences)
        if job.operation == "score":
            return [
                {
                    "unknown": scores.unknown,
                    "forward": scores.forward.tolist(),
                    "backward": None if scores.backward is None else scores.backward.tolist(),
                    "log_prob": scores.log_prob if scores.tokens else None,  # JSON has no nan
                    "perplexity": scores.perplexity if scores.tokens else None,
                }
                for scores in self._lm.stream(sentences)
            ]
        return [
            [
                {
                    "forward": _rows(lists.forward),
                    "backward": None if lists.backward is None else _rows(lists.backward),
                    "both": _rows(lists.both),
                }
                for lists in self._lm.substitutes_by_direction(sentence, k=job.top)
            ]
            for sentence in sentences
        ]


def _beat(heartbeat: Connection) -> None:
    """Shows the front process that this one runs. If the front process is gone, this one ends, even during a batch."""
    while True:
        try:
            heartbeat.send_bytes(b".")
        except OSError:
            os._exit(1)
        time.sleep(HEARTBEAT_S)


def _stacked(vectors: np.ndarray, rows: tuple[int, ...] | None) -> np.ndarray:
    """(K, n, D) in float32, with an axis of layers also for one layer."""
    stacked = vectors[None] if vectors.ndim == 2 else vectors
    chosen = stacked if rows is None else stacked[list(rows)]
    return chosen.astype(np.float32, copy=False)


def _checked(vectors: np.ndarray) -> np.ndarray | Failure:
    # float16 on a GPU can overflow; JSON has no NaN, and a wrong number is worse than an error
    if np.isfinite(vectors).all():
        return vectors
    return Failure(500, "not_finite", "The model returned numbers that are not finite for this text.")


def _rows(substitutes: Sequence[Substitute]) -> list[dict[str, Any]]:
    return [{"word": s.word, "log_prob": s.log_prob, "score": s.score} for s in substitutes]


def _failure(error: Exception) -> Failure:
    if isinstance(error, ElmoError):
        return Failure(422, "refused", error.message)
    # the message of other errors may quote the text, and goes to no log; its type says what kind it is
    return Failure(500, "model_error", f"The model failed on this text ({type(error).__name__}).")
