"""Cache of the context-independent vector of each distinct word, bounded, least recently used words evicted first.

It is the first step of embedding. Running text repeats its words, so the character network encodes a few thousand words
where the LSTMs read tens of thousands of tokens.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from torch import Tensor

from elmo.text.indexer import Indexer

# one word's vector (P,); numpy rows are faster to make and to stack than tensors
Vector = TypeVar("Vector", bound=Tensor | np.ndarray)
_LONGEST_KEY = 64  # characters; a longer token is stored under its row of ids, so that keys do not fill the memory


_caches: weakref.WeakSet[WordCache[Any]] = weakref.WeakSet()


def _renew_locks() -> None:
    for cache in list(_caches):
        cache._renew_lock()


if hasattr(os, "register_at_fork"):  # a lock that another thread of the parent holds is never released in the child
    os.register_at_fork(after_in_child=_renew_locks)


class WordEncoder(Protocol[Vector]):
    """What the cache needs from an executor."""

    def encode_boundaries(self) -> list[Vector]:
        """The vectors of the sentence boundaries <S> and </S>."""

    def encode_words(self, words: list[str]) -> list[Vector]:
        """The vector of each word."""

    def stack(self, vectors: list[Vector]) -> Tensor:
        """The vectors as one tensor (N, P)."""


class WordCache(Generic[Vector]):
    """Vectors of at most `capacity` words. Threads may share it."""

    def __init__(self, encoder: WordEncoder[Vector], indexer: Indexer, capacity: int) -> None:
        self.encoder: WordEncoder[Vector] = encoder
        self._indexer, self.capacity = indexer, capacity
        self._vectors: OrderedDict[str | bytes, Vector] = OrderedDict()
        self._boundaries: list[Vector] = []
        self._renew_lock()

    def __getstate__(self) -> dict[str, Any]:
        # a copy in another process starts with an empty cache; locks cannot be pickled
        return {**self.__dict__, "_vectors": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._renew_lock()

    def __len__(self) -> int:
        return len(self._vectors)

    def table(self, sentences: Iterable[Sequence[str]]) -> tuple[Tensor, dict[str, int]]:
        """Vectors (2 + N, P) of the two boundaries and the N distinct words, and the row of each word."""
        rows = dict(zip(dict.fromkeys(chain.from_iterable(sentences)), count(2)))
        keys: list[str | bytes] = list(rows)
        if max(map(len, rows), default=0) > _LONGEST_KEY:
            keys = [self._key(token) for token in rows]
        with self._lock:
            missing = {key: token for key, token in zip(keys, rows, strict=True) if key not in self._vectors}
            new = dict(zip(missing, self.encoder.encode_words(list(missing.values())), strict=True))
            vectors = [new[key] if key in new else self._vectors[key] for key in keys]
            self._store(keys, new)
        return self.encoder.stack([*self._boundary_vectors(), *vectors]), rows

    def clear(self) -> None:
        """Discards all words. A lookup in another thread ends first."""
        with self._lock:
            self._vectors.clear()

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()
        _caches.add(self)

    def _boundary_vectors(self) -> list[Vector]:
        if not self._boundaries:
            self._boundaries = self.encoder.encode_boundaries()
        return self._boundaries

    def _key(self, token: str) -> str | bytes:
        return token if len(token) <= _LONGEST_KEY else self._indexer.row(token).tobytes()

    def _store(self, used: Iterable[str | bytes], new: dict[str | bytes, Vector]) -> None:
        for key in used:
            if key not in new:
                self._vectors.move_to_end(key)
        # copies, because a row of an array keeps the memory of all other rows of that array alive
        self._vectors.update((key, _copy(vector)) for key, vector in new.items())
        while len(self._vectors) > self.capacity:
            self._vectors.popitem(last=False)


def _copy(vector: Vector) -> Vector:
    duplicate: Any = vector.copy() if isinstance(vector, np.ndarray) else vector.clone()
    return cast(Vector, duplicate)
