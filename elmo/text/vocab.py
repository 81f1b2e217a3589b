"""The vocabulary of a language model's softmax or of a word-level model: word <-> id, most frequent first.

The file format is that of the published models: one word per line, with `<S>`, `</S>` and `<UNK>` among the first
lines. Ids are line numbers, counted from 0; indexers add one, so that 0 is padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.text.lines import read_lines

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
_SKIPPED_LINE = "!!!MAXTERMID"  # a line in old vocabulary files, which bilm-tf skips


class Vocabulary:
    """An ordered list of distinct words that includes `<S>`, `</S>` and `<UNK>`.

    `counts` (V,) says how often the training text has each word; None: unknown.
    """

    def __init__(self, words: Iterable[str], *, source: str = "vocabulary", counts: np.ndarray | None = None) -> None:
        self.words: list[str] = list(words)
        self.counts = counts
        self._ids: dict[str, int] = {}
        for position, word in enumerate(self.words):
            if self._ids.setdefault(word, position) != position:
                raise DataError(
                    f"{source}: {word!r} is on lines {self._ids[word] + 1} and {position + 1}.",
                    "Each word may occur once; remove the second.",
                )
        missing = [word for word in (BOS, EOS, UNK) if word not in self._ids]
        if missing:
            raise DataError(
                f"{source}: {', '.join(missing)} missing in {len(self.words):,} words.",
                "A vocabulary starts with the three lines <S>, </S>, <UNK>.",
            )
        self.bos, self.eos, self.unk = self._ids[BOS], self._ids[EOS], self._ids[UNK]

    @classmethod
    def from_file(cls, path: str | Path) -> Vocabulary:
        """Reads one word per line; the file is decompressed by its suffix, and a blank line is an error."""
        return cls(read_words(path), source=str(path))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        """The word's id, or that of `<UNK>`."""
        return self._ids.get(word, self.unk)

    def ids(self, words: Sequence[str]) -> np.ndarray:
        """Ids of a sentence's words, without boundaries, (N,)."""
        return np.fromiter((self._ids.get(word, self.unk) for word in words), dtype=np.int64, count=len(words))


def read_words(path: str | Path) -> list[str]:
    """The words of a vocabulary file in order, one per line; a blank line is an error."""
    words = []
    for number, line in enumerate(read_lines(path), start=1):
        word = line.strip()
        if not word:
            raise DataError(
                f"{path}:{number}: a blank line in a vocabulary.", "Remove it: the format is one word per line."
            )
        if word != _SKIPPED_LINE:
            words.append(word)
    return words
