"""Lines of word2vec's and GloVe's text format: a word and its numbers, with spaces between them.

    400000 50            an optional first line: how many, how wide
    the 0.418 0.24968 ...

Where static vectors enter: which words are kept is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from elmo.errors import DataError

_HINT = "Expected a word and its numbers a line, with spaces: word2vec's text format, not its binary one."


def vector_lines(lines: Iterable[str], path: str | Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line's number, word, its numbers as written) of each line; `path` is for messages.

    All have as many numbers as the first line says or has; words may hold spaces, as some published files' do.
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
    """A line's numbers in float32, (dim,)."""
    try:
        vector = np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}; expected numbers after the word.", _HINT) from error
    if not np.isfinite(vector).all():
        raise DataError(f"{path}:{number}: a number that is not finite.")
    return vector
