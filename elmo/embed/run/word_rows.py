"""Lookup from tokens to rows of a table of word vectors, at millions of tokens per second, for the CUDA executor.

It does what `word_cache` does for the other executors. The vectors stay on the GPU; the host stores only their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from elmo.text.indexer import Indexer, token_rows

FIRST_ROW = 2  # rows 0 and 1 are the boundaries
_LONGEST_KEY = 64  # characters; a longer token is stored under its row of ids, so that keys do not fill the memory


class WordRows:
    """The row of each word since the last `clear`, numbered in order of appearance."""

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer
        self._rows = _Rows(indexer)

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Discards all words."""
        self._rows = _Rows(self._indexer)

    def number(self, sentences: Sequence[Sequence[str]], lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (N,) int32 of all tokens, and the ids (new, W) of the new words, in the order of their rows.

        The first new word has row FIRST_ROW + the number of words before the call.
        """
        tokens = chain.from_iterable(sentences)
        # the lookup of a stored word stays in C: the dictionary calls __missing__ for new words only
        rows = np.fromiter(map(self._rows.__getitem__, tokens), dtype=np.int32, count=int(lengths.sum()))
        new_words, self._rows.new_words = self._rows.new_words, []
        return rows, token_rows(self._indexer, new_words)


class _Rows(dict[str | bytes, int]):
    def __init__(self, indexer: Indexer) -> None:
        super().__init__()
        self._indexer = indexer
        self.new_words: list[str] = []

    def __missing__(self, token: str) -> int:
        key = token if len(token) <= _LONGEST_KEY else self._indexer.row(token).tobytes()
        row = self.get(key)
        if row is None:
            row = self[key] = len(self) + FIRST_ROW
            self.new_words.append(token)
        return row
