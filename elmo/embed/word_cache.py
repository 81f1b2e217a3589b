"""The context-free vector of each distinct word, computed once and remembered within bounds.

First step of embedding: running text repeats itself, so the character network sees a few thousand words where the
LSTMs see tens of thousands of tokens.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo.embed.run.cpu import FastPath
from elmo.kernels.api import find_strongest_windows
from elmo.model.bilm import BiLM
from elmo.text.indexer import Indexer, token_rows

WORDS_AT_ONCE = 256  # bounds the convolutions' memory: 256 words x 2048 filters x 50 columns is 100 MB
Vector = Any  # of a word, (P,): a row of numpy from a twin, which is made and stacked sooner, otherwise a Tensor
_LONGEST_KEY = 64  # longer tokens are known by their row of ids, so that keys cannot fill the memory


def token_vectors(model: BiLM, ids: Tensor) -> Tensor:
    """Token vectors (N, P) of rows of ids (N, W), through a CUDA kernel where there is one, otherwise plain PyTorch."""
    kind = ids.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else next(model.parameters()).dtype
    vectors: Tensor = model.token_encoder(ids, find_strongest_windows(model, ids.device, dtype))
    return vectors


class WordVectors:
    """Vectors of words, least recently used ones forgotten beyond `capacity`."""

    def __init__(self, model: BiLM, indexer: Indexer, capacity: int, fast: FastPath | None = None) -> None:
        self._model, self._indexer, self.capacity, self._fast = model, indexer, capacity, fast
        self._known: OrderedDict[str | bytes, Vector] = OrderedDict()
        self._boundaries: list[Vector] = []
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
        rows = dict(zip(dict.fromkeys(chain.from_iterable(sentences)), count(2)))
        keys: list[str | bytes] = list(rows)
        if max(map(len, rows), default=0) > _LONGEST_KEY:
            keys = [self._key(token) for token in rows]
        with self._lock:
            missing = {key: token for key, token in zip(keys, rows, strict=True) if key not in self._known}
            fresh = dict(zip(missing, self._compute(list(missing.values())), strict=True))
            vectors = [fresh[key] if key in fresh else self._known[key] for key in keys]
            self._remember(keys, fresh)
        return self._stack([*self._boundary_vectors(), *vectors]), rows

    def clear(self) -> None:
        """Forgets all words."""
        self._known.clear()

    def _boundary_vectors(self) -> list[Vector]:
        if not self._boundaries:
            self._boundaries = self._encode(np.stack([self._indexer.begin, self._indexer.end]))  # two of (P,)
        return self._boundaries

    def _compute(self, words: list[str]) -> list[Vector]:
        if self._fast is not None:  # a twin minds its own memory
            return self._encode(token_rows(self._indexer, words)) if words else []
        # like lengths together: the network convolves no more columns than the longest word of a group needs
        order = sorted(range(len(words)), key=lambda i: len(words[i]))
        vectors: list[Vector] = [torch.empty(0)] * len(words)
        for start in range(0, len(order), WORDS_AT_ONCE):
            group = order[start : start + WORDS_AT_ONCE]
            encoded = self._encode(token_rows(self._indexer, [words[i] for i in group]))  # n of (P,)
            for i, vector in zip(group, encoded, strict=True):
                vectors[i] = vector
        return vectors

    def _encode(self, rows: np.ndarray) -> list[Vector]:
        if self._fast is not None:
            return list(self._fast.encode(rows))
        device = next(self._model.parameters()).device
        return list(token_vectors(self._model, torch.from_numpy(rows).to(device)).unbind())  # N of (P,)

    def _stack(self, vectors: list[Vector]) -> Tensor:
        if self._fast is None:
            return torch.stack(vectors)
        return torch.from_numpy(np.concatenate(vectors).reshape(len(vectors), -1))

    def _key(self, token: str) -> str | bytes:
        return token if len(token) <= _LONGEST_KEY else self._indexer.row(token).tobytes()

    def _remember(self, used: Iterable[str | bytes], fresh: dict[str | bytes, Vector]) -> None:
        for key in used:
            if key not in fresh:
                self._known.move_to_end(key)
        # copies: a row would keep all others of its call in memory, too
        self._known.update((key, v.copy() if isinstance(v, np.ndarray) else v.clone()) for key, v in fresh.items())
        while len(self._known) > self.capacity:
            self._known.popitem(last=False)
