"""Sources of the vectors that probes read: a biLM or static word vectors, behind one protocol.

Probes use nothing else of a model, so they can compare a biLM with static word vectors and with other models.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.model_checksum import model_checksum
from elmo.errors import ConfigError, DataError
from elmo.text.lines import read_lines
from elmo.text.word2vec_format import as_vector, vector_lines


class VectorSource(Protocol):
    """Frozen vectors of all layers for the words of tokenised sentences."""

    @property
    def name(self) -> str: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        """Yields (L, n, D) for each sentence of n words, in order, one sentence at a time."""
        ...

    def identity(self) -> dict[str, Any]:
        """The fields of a record that identify these vectors."""
        ...


class ModelVectors:
    """All layers of a biLM; each sentence is embedded independently of the previous ones."""

    def __init__(self, embedder: Embedder) -> None:
        if embedder.state == "carry":
            raise ConfigError(
                "The embedder has state 'carry'; probes embed each sentence independently.", "Use reset or warm."
            )
        self.embedder = embedder

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def num_layers(self) -> int:
        return self.embedder.num_layers

    @property
    def dim(self) -> int:
        return self.embedder.dim

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        return self.embedder.stream(sentences, layers="all")

    @functools.cached_property
    def _sha256(self) -> str:
        return model_checksum(self.embedder)  # reads all weights, so it is computed once

    def identity(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "sha256": self._sha256,
            "layers": self.num_layers,
            "dim": self.dim,
            "trained": self.embedder.trained,
            "dtype": self.embedder.dtype,
            "state": self.embedder.state,
        }


class StaticVectors:
    """One vector per word, independent of the context: a single layer.

    A word that is not in the table is looked up in lower case; if it is still missing, its vector is zero.
    """

    def __init__(self, rows: Mapping[str, int], matrix: np.ndarray, *, name: str = "", sha256: str = "") -> None:
        self._rows, self.matrix, self._name, self._sha256 = rows, matrix, name, sha256

    @property
    def name(self) -> str:
        return self._name

    @property
    def num_layers(self) -> int:
        return 1

    @property
    def dim(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def words(self) -> list[str]:
        """The words, in the order of the rows of the matrix."""
        return list(self._rows)

    def row(self, word: str) -> int | None:
        """The row of the word in the matrix, or of its lower-case form; None if the table has neither."""
        return self._rows.get(word, self._rows.get(word.lower()))

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        for sentence in sentences:
            vectors = np.zeros((1, len(sentence), self.dim), dtype=np.float32)  # (1, n, D)
            for position, word in enumerate(sentence):
                row = self.row(word)
                if row is not None:
                    vectors[0, position] = self.matrix[row]
            yield vectors

    def identity(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "file_sha256": self._sha256,
            "layers": 1,
            "dim": self.dim,
            "words": len(self.matrix),
        }


def read_static_vectors(path: str, *, limit: int | None = None) -> StaticVectors:
    """Reads vectors in word2vec's or GloVe's text format: one word and its numbers per line; the header is optional.

    `limit` is the maximum number of words; such files are usually sorted by frequency. If a word occurs twice, its
    first vector is used.
    """
    rows: dict[str, int] = {}
    vectors: list[np.ndarray] = []
    digest = hashlib.sha256()

    def hashed_lines() -> Iterator[str]:
        for line in read_lines(path):
            digest.update(line.encode() + b"\n")
            yield line

    for number, word, numbers in vector_lines(hashed_lines(), path):
        if word in rows:
            continue
        rows[word] = len(vectors)
        vectors.append(as_vector(numbers, path, number))
        if limit is not None and len(vectors) >= limit:
            break
    if not vectors:
        raise DataError(f"{path}: the file has no vectors.", "Expected word2vec's text format, not its binary format.")
    return StaticVectors(rows, np.stack(vectors), name=Path(path).name, sha256=digest.hexdigest())
