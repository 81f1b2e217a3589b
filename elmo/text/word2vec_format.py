"""Formats of static word vectors: the text format of word2vec and GloVe is read; more are written for other tools.

    400000 50            an optional first line: number of words, dimension
    the 0.418 0.24968 ...

All static word vectors are read through it; the caller selects the words. Written are word2vec's text and binary
formats, which gensim and others read, and the two tables of the Embedding Projector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.files import atomic_file, atomic_folder
from elmo.progress import Progress

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


def write_word2vec(
    path: Path,
    words: Sequence[str],
    vectors: np.ndarray,  # (V, D)
    *,
    binary: bool = False,
    overwrite: bool = False,
    show: bool | None = None,
) -> None:
    """Writes word2vec's text or binary format. Both keep every bit of float32 numbers."""
    check_words(words)
    row_format = " ".join(["%.9g"] * vectors.shape[1])  # nine digits are enough for every float32
    vectors = np.ascontiguousarray(vectors, dtype="<f4")
    with atomic_file(path, overwrite=overwrite) as partial, open(partial, "wb") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, vector in _with_progress(words, vectors, show):
            numbers = vector.tobytes() if binary else (row_format % tuple(vector.tolist())).encode()
            file.write(b"%s %s\n" % (word.encode(), numbers))


def write_projector(
    folder: Path,
    words: Sequence[str],
    vectors: np.ndarray,  # (V, D)
    counts: np.ndarray | None = None,  # (V,), a second column of the labels
    *,
    overwrite: bool = False,
    show: bool | None = None,
) -> None:
    """Writes vectors.tsv and metadata.tsv, which the Embedding Projector loads (projector.tensorflow.org, TensorBoard).

    A table of labels with one column has no header there, and one with several columns must have one.
    """
    check_words(words)
    row_format = "\t".join(["%.9g"] * vectors.shape[1])
    with atomic_folder(folder, overwrite=overwrite) as partial:
        with open(partial / "vectors.tsv", "w", encoding="utf-8", newline="\n") as file:
            for _, vector in _with_progress(words, vectors, show):
                file.write(row_format % tuple(vector.tolist()) + "\n")
        with open(partial / "metadata.tsv", "w", encoding="utf-8", newline="\n") as file:
            if counts is None:
                file.writelines(f"{word}\n" for word in words)
            else:
                file.write("word\tcount\n")
                file.writelines(f"{word}\t{count}\n" for word, count in zip(words, counts.tolist(), strict=True))


def check_words(words: Sequence[str]) -> None:
    """Raises DataError for a word that these formats cannot hold, because it is empty or contains a separator."""
    for number, word in enumerate(words):
        if not word or not _SEPARATORS.isdisjoint(word):
            raise DataError(
                f"Word {number + 1:,} is {word[:80]!r}: these formats separate words and numbers by white space.",
                "Leave the word out, or replace its spaces, for example by _.",
            )


_SEPARATORS = frozenset(" \t\n\r\v\f")


def _with_progress(words: Sequence[str], vectors: np.ndarray, show: bool | None) -> Iterator[tuple[str, np.ndarray]]:
    with Progress("writing", len(words), show=show) as progress:
        for word, vector in zip(words, vectors, strict=True):
            yield word, vector
            progress.advance(1)
