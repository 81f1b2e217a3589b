"""Static word vectors from a file in word2vec's text format: what the baselines read words as.

Only the wanted words are kept, so a file of millions fits into little memory.
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
class WordTable:
    """Vectors (N, dim) and each word's row."""

    rows: dict[str, int]
    vectors: np.ndarray

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def find(self, word: str) -> np.ndarray | None:
        """The vector of the word as written, else in lower case, else None."""
        row = self.rows.get(word, self.rows.get(word.lower()))
        return None if row is None else np.asarray(self.vectors[row])


def read_vectors(path: str | Path, wanted: Collection[str], extra: int = 0) -> WordTable:
    """Vectors of the wanted words (also in lower case) and of the file's first `extra` words.

    A word that stands twice keeps its first vector. DataError with the line's number for a line that is no vector.
    """
    keep = {form for word in wanted for form in (word, word.lower())}
    rows: dict[str, int] = {}
    found: list[np.ndarray] = []
    for number, word, numbers in vector_lines(read_lines(path), path):
        if word not in rows and (word in keep or len(rows) < extra):
            rows[word] = len(rows)
            found.append(as_vector(numbers, path, number))
    if not found:
        raise DataError(f"{path}: no vector of any wanted word.", "Is it word2vec text: a word and its numbers a line?")
    return WordTable(rows, np.stack(found))
