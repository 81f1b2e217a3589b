"""Static word vectors from a file in word2vec's text format, as word input of the task models.

Only the vectors of requested words are stored, so that a file of millions of words needs little memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.text.lines import read_lines
from elmo.text.word2vec_format import as_vector, vector_lines


@dataclass(frozen=True)
class WordVectors:
    """Vectors (N, dim) and the row of each word."""

    row_of: dict[str, int]
    vectors: np.ndarray

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def lookup(self, word: str) -> np.ndarray | None:
        """The vector of the word as written, otherwise of its lower-case form, otherwise None."""
        row = self.row_of.get(word, self.row_of.get(word.lower()))
        return None if row is None else np.asarray(self.vectors[row])


def read_vectors(path: str | Path, words: Collection[str], extra: int = 0) -> WordVectors:
    """Reads the vectors of the given words, of their lower-case forms, and of the first `extra` words of the file.

    If a word occurs twice, its first vector is used. An invalid line is a DataError with its number.
    """
    requested = {form for word in words for form in (word, word.lower())}
    row_of: dict[str, int] = {}
    vectors: list[np.ndarray] = []
    for number, word, numbers in vector_lines(read_lines(path), path):
        if word not in row_of and (word in requested or len(row_of) < extra):
            row_of[word] = len(row_of)
            vectors.append(as_vector(numbers, path, number))
    if not vectors:
        raise DataError(
            f"{path}: the file has no vector of any word of the data.",
            "Expected word2vec's text format: one word and its numbers per line.",
        )
    return WordVectors(row_of, np.stack(vectors))
