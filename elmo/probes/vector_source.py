"""Where a probe's vectors come from: anything that gives every layer of every word of tokenised sentences, in order.

The probes know nothing else of a model, so a biLM, static word vectors and other people's models stand side by side.
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
    """Frozen vectors for words in sentences."""

    @property
    def name(self) -> str: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        """(L, n, D) for each sentence, in order, without holding them all."""
        ...

    def identity(self) -> dict[str, Any]:
        """What goes into a record to tell these vectors from all others."""
        ...


class ModelVectors:
    """All layers of a biLM; each sentence on its own, whatever came before it."""

    def __init__(self, embedder: Embedder) -> None:
        if embedder.state == "carry":
            raise ConfigError("Probes were asked for with state 'carry'.", "Use reset or warm: sentences stand alone.")
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
        return model_checksum(self.embedder)  # asked for with every text, over all weights

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
    """One vector a word whatever its context: a single layer. Unknown words are tried in lower case, then are zero."""

    def __init__(self, table: Mapping[str, int], matrix: np.ndarray, *, name: str = "", sha256: str = "") -> None:
        self._rows, self.matrix, self._name, self._sha256 = table, matrix, name, sha256

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
        """The words, in the order of the matrix's rows."""
        return list(self._rows)

    def row(self, word: str) -> int | None:
        """The word's row of the matrix, or that of its lower case; None: it has neither."""
        return self._rows.get(word, self._rows.get(word.lower()))

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        for sentence in sentences:
            found = np.zeros((1, len(sentence), self.dim), dtype=np.float32)  # (1, n, D)
            for place, word in enumerate(sentence):
                row = self.row(word)
                if row is not None:
                    found[0, place] = self.matrix[row]
            yield found

    def identity(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "file_sha256": self._sha256,
            "layers": 1,
            "dim": self.dim,
            "words": len(self.matrix),
        }


def read_static_vectors(path: str, *, limit: int | None = None) -> StaticVectors:
    """Vectors in word2vec's or GloVe's text format: a word and its numbers a line, the line of counts optional.

    With `limit` only the first so many words, which such files order by frequency. Of a word given twice the first
    counts.
    """
    rows: dict[str, int] = {}
    vectors: list[np.ndarray] = []
    digest = hashlib.sha256()

    def digested() -> Iterator[str]:
        for line in read_lines(path):
            digest.update(line.encode() + b"\n")
            yield line

    for number, word, numbers in vector_lines(digested(), path):
        if word in rows:
            continue
        rows[word] = len(vectors)
        vectors.append(as_vector(numbers, path, number))
        if limit is not None and len(vectors) >= limit:
            break
    if not vectors:
        raise DataError(f"{path}: no vectors were found.", "Expected word2vec's text format, not its binary one.")
    return StaticVectors(rows, np.stack(vectors), name=Path(path).name, sha256=digest.hexdigest())
