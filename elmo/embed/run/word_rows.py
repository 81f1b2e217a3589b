"""Tokens to rows of a table of word vectors, millions a second: one dictionary, and new words noted on the way.

What `words` is for the plain path, for the CUDA twin: the vectors stay on the GPU, the host knows only their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from elmo.text.indexer import Indexer, token_rows

FIRST_ROW = 2  # rows 0 and 1 are the boundaries
_LONGEST_KEY = 64  # longer tokens are known by their row of ids, so that keys cannot fill the memory


class WordRows:
    """The row of each word seen since the last `clear`, numbered as they come."""

    def __init__(self, indexer: Indexer) -> None:
        self._indexer = indexer
        self._rows = _Rows(indexer)

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forgets all words."""
        self._rows = _Rows(self._indexer)

    def number(self, sentences: Sequence[Sequence[str]], lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (N,) int32 of all tokens, and the ids (new, W) of the words not seen before, in the order of their rows.

        The first of the new words has row FIRST_ROW + what `len` was before.
        """
        tokens = chain.from_iterable(sentences)
        # a known word never leaves C: the dictionary asks __missing__ for new ones only
        rows = np.fromiter(map(self._rows.__getitem__, tokens), dtype=np.int32, count=int(lengths.sum()))
        fresh, self._rows.fresh = self._rows.fresh, []
        return rows, token_rows(self._indexer, fresh)


class _Rows(dict[str | bytes, int]):
    def __init__(self, indexer: Indexer) -> None:
        super().__init__()
        self._indexer = indexer
        self.fresh: list[str] = []

    def __missing__(self, token: str) -> int:
        key = token if len(token) <= _LONGEST_KEY else self._indexer.row(token).tobytes()
        row = self.get(key)
        if row is None:
            row = self[key] = len(self) + FIRST_ROW
            self.fresh.append(token)
        return row
