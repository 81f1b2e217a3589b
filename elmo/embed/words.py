"""The context-free vector of each distinct word, computed once and remembered within bounds.

First step of embedding: running text repeats itself, so the character network sees a few thousand words where the
LSTMs see tens of thousands of tokens.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.fast import FastPath
from elmo.model.bilm import BiLM
from elmo.text.indexer import Indexer, token_rows

WORDS_AT_ONCE = 256  # bounds the convolutions' memory: 256 words x 2048 filters x 50 columns is 100 MB
_LONGEST_KEY = 64  # longer tokens are known by their row of ids, so that keys cannot fill the memory


class WordVectors:
    """Vectors of words, least recently used ones forgotten beyond `capacity`."""

    def __init__(self, model: BiLM, indexer: Indexer, capacity: int, fast: FastPath | None = None) -> None:
        self._model, self._indexer, self.capacity, self._fast = model, indexer, capacity, fast
        self._known: OrderedDict[str | bytes, Tensor] = OrderedDict()
        self._boundaries: tuple[Tensor, ...] = ()
        self._lock = threading.Lock()  # callers may share an embedder between threads

    def __getstate__(self) -> dict[str, Any]:
        # a copy in another process starts with an empty memory; locks cannot travel
        return {**self.__dict__, "_known": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def table(self, sentences: Iterable[Sequence[str]]) -> tuple[Tensor, dict[str, int]]:
        """Vectors (2 + N, P) of the boundaries and the N distinct words, and each word's row."""
        rows: dict[str, int] = {}
        for sentence in sentences:
            for token in sentence:
                if token not in rows:
                    rows[token] = len(rows) + 2
        keys = [self._key(token) for token in rows]
        with self._lock:
            missing = {key: token for key, token in zip(keys, rows, strict=True) if key not in self._known}
            fresh = dict(zip(missing, self._compute(list(missing.values())), strict=True))
            vectors = [fresh[key] if key in fresh else self._known[key] for key in keys]
            self._remember(keys, fresh)
        return torch.stack([*self._boundary_vectors(), *vectors]), rows

    def clear(self) -> None:
        """Forgets all words."""
        self._known.clear()

    def _boundary_vectors(self) -> tuple[Tensor, ...]:
        if not self._boundaries:
            self._boundaries = self._encode(np.stack([self._indexer.begin, self._indexer.end])).unbind()  # two of (P,)
        return self._boundaries

    def _compute(self, words: list[str]) -> list[Tensor]:
        # like lengths together: the network convolves no more columns than the longest word of a group needs
        order = sorted(range(len(words)), key=lambda i: len(words[i]))
        vectors: list[Tensor] = [torch.empty(0)] * len(words)
        at_once = WORDS_AT_ONCE if self._fast is None else max(1, len(order))  # a twin minds its own memory
        for start in range(0, len(order), at_once):
            group = order[start : start + at_once]
            encoded = self._encode(token_rows(self._indexer, [words[i] for i in group]))  # (n, P)
            for i, vector in zip(group, encoded.unbind(), strict=True):
                vectors[i] = vector
        return vectors

    def _encode(self, rows: np.ndarray) -> Tensor:
        if self._fast is not None:
            return self._fast.encode(rows)
        device = next(self._model.parameters()).device
        return self._model.token_encoder(torch.from_numpy(rows).to(device))  # (N, P)

    def _key(self, token: str) -> str | bytes:
        return token if len(token) <= _LONGEST_KEY else self._indexer.row(token).tobytes()

    def _remember(self, used: Iterable[str | bytes], fresh: dict[str | bytes, Tensor]) -> None:
        for key in used:
            if key in fresh:
                self._known[key] = fresh[key]
            else:
                self._known.move_to_end(key)
        while len(self._known) > self.capacity:
            self._known.popitem(last=False)
