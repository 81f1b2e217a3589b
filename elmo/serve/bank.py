"""The sentence bank of /similar: the vectors of its words in every layer, and the nearest of them to a word.

The vectors are computed by the workers at the first use and stay in the front process as float16, (L+1, N, D). The
cosine with any mix of layers follows from the products with each layer and the layers' inner products per word, so that
one copy serves every layer and every mix.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.serve.api_error import ApiError
from elmo.serve.batcher import Batcher
from elmo.serve.jobs import Failure, Job
from elmo.text.inputs import caseless
from elmo.text.lines import read_lines
from elmo.text.tokenize import Tokenizer

log = logging.getLogger(__name__)

SHIPPED = Path(__file__).parent / "bank" / "sentences.txt.xz"
MAX_TOKENS = 400_000  # about 1.2 GB for three layers of 512
_TOKENS_PER_JOB = 2048  # small, so that requests of clients wait little behind them
_ROWS = 8192  # words that are converted to float32 at once


@dataclass(frozen=True)
class BankNeighbor:
    """One occurrence of a word in the bank, and its cosine to the query."""

    tokens: tuple[str, ...]
    position: int
    cosine: float
    line: int


def read_bank(path: Path, tokenize: Tokenizer) -> list[tuple[str, ...]]:
    """The sentences of a text with one sentence per line, tokenised; empty lines are empty sentences."""
    sentences = [tuple(token.text for token in tokenize(line)) for line in read_lines(path)]
    num_tokens = sum(map(len, sentences))
    if num_tokens == 0:
        raise DataError(f"{path} has no words.", "Give a text with one sentence per line.")
    if num_tokens > MAX_TOKENS:
        raise DataError(
            f"{path} has {num_tokens:,} tokens; a bank may have {MAX_TOKENS:,}, because it stays in memory.",
            "Give a smaller file. `elmo similar` searches files of any size.",
        )
    return sentences


class SentenceBank:
    """Sentences, and after the first use their vectors."""

    def __init__(self, sentences: Sequence[tuple[str, ...]]) -> None:
        self.sentences = sentences
        self.num_tokens = sum(map(len, sentences))
        self._line = np.repeat(np.arange(len(sentences)), [len(s) for s in sentences])  # (N,)
        starts = np.cumsum([0, *(len(s) for s in sentences)])[:-1]
        self._position = np.arange(self.num_tokens) - starts[self._line]  # (N,)
        self._words = np.array([caseless(token) for sentence in sentences for token in sentence], dtype=object)
        self._layers: np.ndarray | None = None  # (L+1, N, D), float16
        self._products: np.ndarray | None = None  # (N, L+1, L+1): inner products of a word's layers
        self._building: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        return self._layers is not None

    def prepare(self, batcher: Batcher) -> asyncio.Task[None]:
        """Starts to compute the vectors in the background, unless that is done or under way; a failure is retried."""
        if self._building is None or self._building.done() and not self.is_ready:
            self._building = asyncio.create_task(self._build(batcher))
            self._building.add_done_callback(_log_failure)
        return self._building

    async def wait(self, batcher: Batcher, deadline: float) -> None:
        """Returns when the vectors are there; ApiError 503 if they are not at the deadline."""
        building = self.prepare(batcher)
        left = deadline - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait([building], timeout=max(0.0, left))
        if not done or building.exception() is not None:
            message = "The vectors of the sentence bank are still being computed."
            raise ApiError(503, "bank_not_ready", message, retry_after=5)

    def nearest(
        self,
        query: np.ndarray,
        weights: np.ndarray,
        *,
        top: int,
        word: str | None,
        exclude: tuple[tuple[str, ...], int],
    ) -> list[BankNeighbor]:
        """The nearest words to a query's layers (L+1, D) under a mix of the layers.

        `word`: only occurrences of this word, regardless of case. `exclude` is the query itself, a sentence and a
        position, which is no neighbour.
        """
        cosines = self._cosines(query.astype(np.float32), weights.astype(np.float32))  # (N,)
        if word is not None:
            cosines[self._words != caseless(word)] = -np.inf
        neighbors: list[BankNeighbor] = []
        for row in np.argsort(-cosines, kind="stable"):
            tokens = self.sentences[self._line[row]]
            if cosines[row] == -np.inf or len(neighbors) == top:
                break
            if (tokens, self._position[row]) != exclude:
                neighbors.append(
                    BankNeighbor(tokens, int(self._position[row]), float(cosines[row]), int(self._line[row]))
                )
        return neighbors

    def _cosines(self, query: np.ndarray, weights: np.ndarray) -> np.ndarray:
        assert self._layers is not None
        assert self._products is not None
        mixed = weights @ query  # (D,)
        dots = np.zeros(self.num_tokens, dtype=np.float32)
        for begin in range(0, self.num_tokens, _ROWS):
            for weight, layer in zip(weights, self._layers, strict=True):
                if weight != 0:
                    dots[begin : begin + _ROWS] += weight * (layer[begin : begin + _ROWS].astype(np.float32) @ mixed)
        squares = np.einsum("i,nij,j->n", weights, self._products, weights)  # (N,)
        lengths = np.sqrt(np.maximum(squares, 0)) * float(np.linalg.norm(mixed))
        cosines: np.ndarray = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
        return cosines

    async def _build(self, batcher: Batcher) -> None:
        info = batcher.info
        layers = np.empty((info.num_layers, self.num_tokens, info.dim), dtype=np.float16)
        products = np.empty((self.num_tokens, info.num_layers, info.num_layers), dtype=np.float32)
        end = 0
        for group in self._groups():
            for vectors in await batcher.run(Job(operation="vectors", layers="all"), group, deadline=None):
                if isinstance(vectors, Failure):
                    raise RuntimeError(vectors.message)
                begin, end = end, end + vectors.shape[1]
                layers[:, begin:end] = vectors
                products[begin:end] = np.einsum("int,jnt->nij", vectors, vectors)
        self._products, self._layers = products, layers

    def _groups(self) -> Iterator[list[tuple[str, ...]]]:
        group: list[tuple[str, ...]] = []
        for sentence in filter(None, self.sentences):
            if group and sum(map(len, group)) + len(sentence) > _TOKENS_PER_JOB:
                yield group
                group = []
            group.append(sentence)
        yield group


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the sentence bank cannot be computed (%s)", type(task.exception()).__name__)
