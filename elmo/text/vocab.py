"""The words a language model can predict, or a word-level model can read: word <-> id, most frequent first.

One token a line, the format of the published models: `<S>`, `</S>` and `<UNK>` are among the first lines. Ids here are
line numbers; a word-level network's rows shift them by one, as everywhere, so that 0 is padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.text.lines import read_lines

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
_SKIPPED_LINE = "!!!MAXTERMID"  # a line that old vocabulary files carry and the reference skips


class Vocabulary:
    """An ordered list of distinct words with `<S>`, `</S>` and `<UNK>` in it."""

    def __init__(self, words: Iterable[str], *, source: str = "vocabulary") -> None:
        self.words: list[str] = list(words)
        self._ids: dict[str, int] = {}
        for position, word in enumerate(self.words):
            if self._ids.setdefault(word, position) != position:
                raise DataError(
                    f"{source}: {word!r} stands on lines {self._ids[word] + 1} and {position + 1}.",
                    "Each word may stand once; remove the second.",
                )
        missing = [word for word in (BOS, EOS, UNK) if word not in self._ids]
        if missing:
            raise DataError(
                f"{source}: {', '.join(missing)} missing among {len(self.words):,} words.",
                "A vocabulary starts with the three lines <S>, </S>, <UNK>.",
            )
        self.bos, self.eos, self.unk = self._ids[BOS], self._ids[EOS], self._ids[UNK]

    @classmethod
    def from_file(cls, path: str | Path) -> Vocabulary:
        """Reads one word a line (compressed by suffix); blank lines are refused with their number."""
        words = []
        for number, line in enumerate(read_lines(path), start=1):
            word = line.strip()
            if not word:
                raise DataError(f"{path}:{number}: a blank line in a vocabulary.", "Remove it: one word a line.")
            if word != _SKIPPED_LINE:
                words.append(word)
        return cls(words, source=str(path))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        """The word's line number, or that of `<UNK>`."""
        return self._ids.get(word, self.unk)

    def ids(self, words: Sequence[str]) -> np.ndarray:
        """Line numbers of a sentence's words without boundaries, (T,)."""
        return np.fromiter((self._ids.get(word, self.unk) for word in words), dtype=np.int64, count=len(words))
