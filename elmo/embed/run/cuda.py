"""Embedding through the CUDA twin of the whole biLM: windows of sentences, one being computed while the next is read.

Stands where `words` and `sweep` stand otherwise. A window's words are numbered here, its new words encoded and its
layers computed on the GPU, and only what was asked for comes back, while the GPU is at the next window.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.embed.run.word_rows import FIRST_ROW, WordRows
from elmo.kernels import api as kernels
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.batch import windows_of
from elmo.text.indexer import Indexer

WINDOW_TOKENS = 131_072  # enough for a thousand rows of a hundred steps
WINDOW_BYTES = 256 << 20  # of a window's vectors
FIRST_WORDS = 1024  # rows of a new table


@dataclass(frozen=True)
class _Started:
    sentences: Sequence[Sequence[str]]
    result: Callable[[], Tensor]  # waits for it


class Bulk:
    """Sentences to chosen layers or pooled vectors; weights are laid out when first needed.

    At most about `capacity` words are remembered between windows; beyond, all are forgotten at once.
    """

    def __init__(self, model: BiLM, indexer: Indexer, maker: Any, capacity: int) -> None:
        self._model, self._indexer, self._maker, self.capacity = model, indexer, maker, capacity
        self._twin: Any = None
        self._table: Tensor | None = None
        self._words = WordRows(indexer)
        self._lock = threading.Lock()  # callers may share an embedder between threads

    def __getstate__(self) -> dict[str, Any]:
        # a copy in another process lays out its own weights; locks, streams and graphs cannot travel
        empty = {"_twin": None, "_table": None, "_words": WordRows(self._indexer), "_lock": None}
        return {**self.__dict__, **empty}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._words)

    def clear(self) -> None:
        """Forgets all words."""
        with self._lock:
            self._words.clear()

    def vectors(
        self, sentences: Iterable[Sequence[str]], choice: LayerChoice, initial: State, *, max_tokens: int, on_host: bool
    ) -> Iterator[Tensor]:
        """(K, n, D) of each sentence in turn, memory of its own."""
        for started in self._ahead(sentences, choice, initial, max_tokens, None, on_host):
            vectors, end = started.result(), 0  # (K, N, D)
            for sentence in started.sentences:
                begin, end = end, end + len(sentence)
                yield vectors[:, begin:end].clone()

    def pooled(
        self, sentences: Iterable[Sequence[str]], choice: LayerChoice, initial: State, pooling: str, *, max_tokens: int
    ) -> Iterator[tuple[Tensor, int]]:
        """Window by window (n, K, D) on the host, one for each sentence, and how many tokens they were pooled from."""
        for started in self._ahead(sentences, choice, initial, max_tokens, pooling, True):
            yield started.result(), sum(map(len, started.sentences))

    def _ahead(
        self,
        sentences: Iterable[Sequence[str]],
        choice: LayerChoice,
        initial: State,
        max_tokens: int,
        pooling: str | None,
        on_host: bool,
    ) -> Iterator[_Started]:
        """Each window when the next one has been started."""
        dim = self._model.config.dim
        token_bytes = len(choice.matrix) * dim * next(self._model.parameters()).element_size()
        at_once = min(WINDOW_TOKENS, max_tokens, max(1, WINDOW_BYTES // token_bytes))
        before: _Started | None = None
        for window in windows_of(sentences, at_once):
            started = self._start(window, choice, initial, pooling, on_host)
            if before is not None:
                yield before
            before = started
        if before is not None:
            yield before

    def _start(
        self, sentences: list[Sequence[str]], choice: LayerChoice, initial: State, pooling: str | None, on_host: bool
    ) -> _Started:
        with self._lock:
            if self._twin is None:
                self._twin = self._maker(self._model)
            twin = self._twin
            try:
                with twin.at_work():
                    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
                    table, words = self._number(sentences, lengths)
                    found = twin.contextualize(
                        table, words, lengths, choice.matrix.numpy(),
                        initial=(initial.h[:, :, 0], initial.c[:, :, 0]), pooling=pooling,
                    )  # fmt: skip
                    sent = twin.send(found, to_host=on_host)
            except BaseException:
                self._words.clear()  # words that were numbered may not have been encoded
                raise
        return _Started(sentences, sent.wait)

    def _number(self, sentences: list[Sequence[str]], lengths: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """The table (V, P), and the row in it of every token (N,)."""
        twin = self._twin
        if len(self._words) > self.capacity:
            self._words.clear()
        known = len(self._words)
        words, fresh = self._words.number(sentences, lengths)
        needed = FIRST_ROW + known + len(fresh)
        if self._table is None or len(self._table) < needed:
            rows = max(FIRST_WORDS, needed if self._table is None else 2 * needed)
            larger = torch.empty(rows, twin.proj_dim, device=twin.device, dtype=twin.dtype)  # (V, P)
            if self._table is None:
                twin.encode_into(larger, 0, np.stack([self._indexer.begin, self._indexer.end]))
            else:
                larger[: len(self._table)] = self._table
            self._table = larger
        if len(fresh):
            twin.encode_into(self._table, FIRST_ROW + known, fresh)
        return self._table, words


def find_bulk(model: BiLM, indexer: Indexer, device: str, dtype: str, capacity: int) -> Bulk | None:
    """The twin for this device and dtype, or None: compute otherwise."""
    maker = kernels.find_kernel("bilm_bulk", device, dtype, model)
    return None if maker is None else Bulk(model, indexer, maker, capacity)
