"""Static word vectors from a file in word2vec's text format: what the baselines read words as.

    400000 50            an optional first line: how many, how wide
    the 0.418 0.24968 ...

Only the wanted words are kept, so a file of millions fits into little memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.files import open_bytes


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
    dim = 0
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            parts = line.rstrip(b" \r\n").split(b" ")
            if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                dim = int(parts[1])
                continue
            dim = dim or len(parts) - 1
            word = _decoded(b" ".join(parts[:-dim]), path, number)  # some files have words with spaces
            if len(parts) < dim + 1 or not word:
                raise DataError(f"{path}:{number}: {len(parts) - 1} numbers after a word; expected {dim}.")
            if word in rows or not (word in keep or len(rows) < extra):
                continue
            vector = _numbers(parts[-dim:], path, number)
            rows[word] = len(rows)
            found.append(vector)
    if not found:
        raise DataError(f"{path}: no vector of any wanted word.", "Is it word2vec text: a word and its numbers a line?")
    return WordTable(rows, np.stack(found))


def _decoded(raw: bytes, path: str | Path, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 ({error.reason}).", "Binary vectors? Save text.") from error


def _numbers(parts: list[bytes], path: str | Path, number: int) -> np.ndarray:
    try:
        vector = np.array([float(part) for part in parts], dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}; expected numbers after the word.") from error
    if not np.isfinite(vector).all():
        raise DataError(f"{path}:{number}: a number that is not finite.")
    return vector
