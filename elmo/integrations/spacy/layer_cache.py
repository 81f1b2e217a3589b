"""A cache of a frozen biLM's layers for the sentences of a training run: an SQLite file, shared by epochs and runs.

spaCy shuffles its documents and gives them batch by batch, so that sentences are stored one by one, as they come. The
numbers are float16. Keys depend on the model, the state policy and the precision, so that one file may serve several.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from elmo.errors import DataError

if TYPE_CHECKING:
    from elmo.embed.embedder import Embedder

WAIT_SECONDS = 600.0  # for another process that writes


class LayerCache:
    """Layers (L+1, n, D) in float16 of tokenised sentences; those that are not in the file are computed and stored."""

    def __init__(self, path: str, embedder: Embedder) -> None:
        from elmo.embed.model_checksum import vectors_checksum

        self._path, self._embedder = path, embedder
        self._prefix = vectors_checksum(embedder)
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        with self._explain(), self._open() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS layers (sentence BLOB PRIMARY KEY, numbers BLOB NOT NULL)")

    def layers(self, sentences: list[list[str]]) -> list[np.ndarray]:
        """The layers of each sentence, in order."""
        keys = [self._key(tokens) for tokens in sentences]
        stored: dict[bytes, np.ndarray] = {}
        with self._explain(), self._open() as connection:
            for key, tokens in zip(keys, sentences, strict=True):
                row = connection.execute("SELECT numbers FROM layers WHERE sentence = ?", (key,)).fetchone()
                if row is not None:
                    stored[key] = self._array(row[0], len(tokens))
        missing = {key: tokens for key, tokens in zip(keys, sentences, strict=True) if key not in stored}
        if missing:
            computed = self._embedder.layers(list(missing.values()))
            fresh = {key: layers.astype(np.float16) for key, layers in zip(missing, computed, strict=True)}
            if not all(np.isfinite(layers).all() for layers in fresh.values()):
                raise DataError("The biLM's vectors are too large for float16.", "Train without a cache_path.")
            rows = [(key, layers.tobytes()) for key, layers in fresh.items()]
            with self._explain(), self._open() as connection:
                connection.executemany("INSERT OR IGNORE INTO layers VALUES (?, ?)", rows)
            stored |= fresh
        return [stored[key] for key in keys]

    def _key(self, tokens: list[str]) -> bytes:
        return hashlib.sha256(f"{self._prefix} {json.dumps(tokens)}".encode()).digest()

    def _array(self, numbers: bytes, num_tokens: int) -> np.ndarray:
        shape = self._embedder.num_layers, num_tokens, self._embedder.dim
        if len(numbers) != 2 * shape[0] * shape[1] * shape[2]:
            raise DataError(f"{self._path}: a sentence has {len(numbers):,} bytes; expected those of {shape}.", _HINT)
        return np.frombuffer(numbers, dtype=np.float16).reshape(shape)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction. A connection must not be used in another process than that which opened it."""
        if self._connection is None or self._process != os.getpid():
            self._connection, self._process = sqlite3.connect(self._path, timeout=WAIT_SECONDS), os.getpid()
            self._connection.execute("PRAGMA synchronous = OFF")  # what a power failure loses is computed again
        with self._connection:
            yield self._connection

    @contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DataError(f"{self._path} cannot be used as a cache of layers: {error}.", _HINT) from error


_HINT = "Delete the file, and training computes its layers again; or set another cache_path."
