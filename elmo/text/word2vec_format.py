"""Parses the text format of word2vec and GloVe: one word and its vector per line, separated by spaces.

    400000 50            an optional first line: number of words, dimension
    the 0.418 0.24968 ...

All static word vectors are read through it; the caller selects the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from elmo.errors import DataError

_HINT = "Expected word2vec's text format, not its binary one: per line a word and its numbers, separated by spaces."


def vector_lines(lines: Iterable[str], path: str | Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line number, word, its numbers as strings) for each line; `path` names the file in errors.

    Every line has the dimension that the first line declares or has. Words may contain spaces, as some files do.
    """
    dim = 0
    for number, line in enumerate(lines, start=1):
        parts = line.rstrip(" \r").split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
            dim = int(parts[1])
            continue
        dim = dim or len(parts) - 1
        if not dim:
            raise DataError(f"{path}:{number}: no numbers after the word; expected word2vec's text format.", _HINT)
        word = " ".join(parts[:-dim])
        if not word:
            raise DataError(f"{path}:{number}: {len(parts) - 1} numbers after a word; expected {dim}.", _HINT)
        yield number, word, parts[-dim:]


def as_vector(numbers: list[str], path: str | Path, number: int) -> np.ndarray:
    """The numbers of one line as float32, (dim,)."""
    try:
        vector = np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}; expected numbers after the word.", _HINT) from error
    if not np.isfinite(vector).all():
        raise DataError(f"{path}:{number}: a number that is not finite.")
    return vector
