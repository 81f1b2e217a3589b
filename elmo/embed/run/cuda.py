"""The executor on CUDA kernels (`elmo.kernels.cuda`): large windows of sentences, one computed while the next is read.

The host gives each word of a window its row in a table of word vectors (`word_rows`). The GPU encodes the new words,
computes the layers and sends back only the chosen ones, while it already computes the next window.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.embed.run.batches import BatchOptions
from elmo.embed.run.plain import PlainExecutor
from elmo.embed.run.word_rows import FIRST_ROW, WordRows
from elmo.embed.states import CarriedState
from elmo.embed.word_cache import WordCache
from elmo.kernels.api import GpuBiLM, MakeGpuBiLM, PendingTensor
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.batch import windows_of
from elmo.text.indexer import Indexer

BATCHES_PER_WINDOW = 32  # a GPU that reads sentences without padding needs more of them at once than a padded batch
WINDOW_TOKENS = 131_072  # enough for a thousand rows of a hundred steps
WINDOW_BYTES = 256 << 20  # of the vectors of one window
INITIAL_TABLE_ROWS = 1024


@dataclass(frozen=True)
class _PendingWindow:
    sentences: Sequence[Sequence[str]]
    vectors: PendingTensor


class CudaExecutor:
    """Implements `Executor` with the CUDA implementation of the biLM. Weights are laid out at first use.

    Padded batches and state "carry" go through a PlainExecutor. About `cache_words` words stay in the table between
    windows; when there are more, all are discarded.
    """

    def __init__(self, plain: PlainExecutor, indexer: Indexer, make: MakeGpuBiLM, cache_words: int) -> None:
        self.plain, self._indexer, self._make, self._cache_words = plain, indexer, make, cache_words
        self._kernels: GpuBiLM | None = None
        self._table: Tensor | None = None  # (V, P): the boundaries, then words
        self._word_rows = WordRows(indexer)
        self._lock = threading.Lock()  # threads may share an embedder

    def __getstate__(self) -> dict[str, Any]:
        # a copy in another process lays out its own weights: locks, streams and CUDA graphs cannot be pickled
        empty = {"_kernels": None, "_table": None, "_word_rows": WordRows(self._indexer), "_lock": None}
        return {**self.__dict__, **empty}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def model(self) -> BiLM:
        return self.plain.model

    @property
    def words(self) -> WordCache[Tensor]:
        return self.plain.words

    @property
    def carried(self) -> CarriedState:
        return self.plain.carried

    def vectors(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, *, on_host: bool
    ) -> Iterator[Tensor]:
        if options.policy == "carry":
            yield from self.plain.vectors(sentences, layer_choice, options, on_host=on_host)
            return
        for window in self._windows(sentences, layer_choice, options, None, on_host):
            vectors, end = window.vectors.wait(), 0  # (K, N, D)
            for sentence in window.sentences:
                begin, end = end, end + len(sentence)
                yield vectors[:, begin:end].clone()

    def pooled(
        self, sentences: Iterable[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions, pooling: str
    ) -> Iterator[tuple[np.ndarray, int]]:
        if options.policy == "carry":
            yield from self.plain.pooled(sentences, layer_choice, options, pooling)
            return
        for window in self._windows(sentences, layer_choice, options, pooling, True):
            vectors = window.vectors.wait()  # (S, K, D)
            yield (vectors if layer_choice.stacked else vectors[:, 0]).numpy(), sum(map(len, window.sentences))

    def padded_batches(
        self, sentences: Sequence[Sequence[str]], layer_choice: LayerChoice, options: BatchOptions
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        return self.plain.padded_batches(sentences, layer_choice, options)

    def clear_words(self) -> None:
        self.plain.clear_words()
        with self._lock:
            self._word_rows.clear()

    def _windows(
        self,
        sentences: Iterable[Sequence[str]],
        layer_choice: LayerChoice,
        options: BatchOptions,
        pooling: str | None,
        on_host: bool,
    ) -> Iterator[_PendingWindow]:
        """Every window in order, each after the next one has been started."""
        initial = self.plain.initial_states.rows(options.policy, torch.zeros(1, dtype=torch.int64))
        token_bytes = len(layer_choice.matrix) * self.model.config.dim * next(self.model.parameters()).element_size()
        window_tokens = min(WINDOW_TOKENS, BATCHES_PER_WINDOW * options.max_tokens, max(1, WINDOW_BYTES // token_bytes))
        previous: _PendingWindow | None = None
        for window in windows_of(sentences, window_tokens):
            started = self._start(window, layer_choice, initial, pooling, on_host)
            if previous is not None:
                yield previous
            previous = started
        if previous is not None:
            yield previous

    def _start(
        self,
        sentences: list[Sequence[str]],
        layer_choice: LayerChoice,
        initial: State,
        pooling: str | None,
        on_host: bool,
    ) -> _PendingWindow:
        kind = next(self.model.parameters()).device.type
        with self._lock, torch.autocast(kind, enabled=False):  # word vectors and weights are stored for later calls
            if self._kernels is None:
                self._kernels = self._make(self.model)
            kernels = self._kernels
            try:
                with kernels.at_work():
                    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
                    table, words = self._look_up_words(kernels, sentences, lengths)
                    vectors = kernels.contextualize(
                        table, words, lengths, layer_choice.matrix.float().numpy(),
                        initial=(initial.h[:, :, 0], initial.c[:, :, 0]), pooling=pooling,
                    )  # fmt: skip
                    pending = kernels.send(vectors, to_host=on_host)
            except BaseException:
                self._word_rows.clear()  # some words may have a row but no vector yet
                raise
        return _PendingWindow(sentences, pending)

    def _look_up_words(
        self, kernels: GpuBiLM, sentences: list[Sequence[str]], lengths: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        """The table (V, P), with all words of the sentences, and the row of every token in it, (N,)."""
        if len(self._word_rows) > self._cache_words:
            self._word_rows.clear()
        num_cached = len(self._word_rows)
        words, new_ids = self._word_rows.number(sentences, lengths)
        num_rows = FIRST_ROW + num_cached + len(new_ids)
        if self._table is None or len(self._table) < num_rows:
            capacity = max(INITIAL_TABLE_ROWS, num_rows if self._table is None else 2 * num_rows)
            larger = torch.empty(capacity, kernels.proj_dim, device=kernels.device, dtype=kernels.dtype)  # (V, P)
            if self._table is None:
                kernels.encode_into(larger, 0, np.stack([self._indexer.begin, self._indexer.end]))
            else:
                larger[: len(self._table)] = self._table
            self._table = larger
        if len(new_ids):
            kernels.encode_into(self._table, FIRST_ROW + num_cached, new_ids)
        return self._table, words
