"""The words a run knows, by number: 0 is padding, 1 any unknown word; made once from the data and the vectors file.

A word is looked up as written, then in lower case. Characters need no list: they are UTF-8 bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from elmo.tasks.word_vectors import WordTable

PADDING, UNKNOWN = 0, 1
BEGIN_WORD, END_WORD, NUM_CHARS = 257, 258, 259  # bytes are 1 to 256, 0 is padding


class Symbols:
    """Word <-> number."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: number for number, word in enumerate(self.words, start=2)}

    def __len__(self) -> int:
        """Rows a table of these words has, with padding and unknown."""
        return len(self.words) + 2

    def id(self, word: str) -> int:
        """As written, else in lower case, else unknown."""
        found = self._ids.get(word)
        return self._ids.get(word.lower(), UNKNOWN) if found is None else found


def make_symbols(
    training: Iterable[Sequence[str]], other: Iterable[Sequence[str]], table: WordTable | None, *, min_count: int
) -> Symbols:
    """Training words that are frequent or have a vector; other words (of dev and test) that have one; then the rest.

    Without a vectors file, dev and test add nothing.
    """
    counts = Counter(token for sentence in training for token in sentence)
    known: Mapping[str, int] = table.rows if table is not None else {}
    words = {w: None for w, n in counts.items() if n >= min_count or w in known or w.lower() in known}
    if table is not None:
        words.update(dict.fromkeys(t for s in other for t in s if t in known or t.lower() in known))
        words.update(dict.fromkeys(known))
    return Symbols(sorted(words))


def start_vectors(symbols: Symbols, table: WordTable | None, dim: int, seed: int) -> np.ndarray:
    """First values of the word table, (num_words, dim): the file's vectors, else chance by word and seed.

    Chance has the spread of the file's numbers, so that an unknown word is neither louder nor quieter than a known one.
    """
    spread = float(table.vectors.std()) if table is not None else 0.0
    spread = spread or dim**-0.5  # without a file a vector is about as long as one
    start = np.zeros((len(symbols), dim), dtype=np.float32)  # (V, dim)
    start[UNKNOWN] = _chance("", dim, seed) * spread
    for number, word in enumerate(symbols.words, start=2):
        row = None if table is None else table.find(word)
        start[number] = _chance(word, dim, seed) * spread if row is None else row
    return start


def char_ids(word: str, max_chars: int) -> list[int]:
    """Begin, UTF-8 bytes, end; a longer word keeps its first and last bytes."""
    raw = word.encode("utf-8", errors="surrogatepass")
    if len(raw) > max_chars:
        half = max_chars // 2
        raw = raw[: max_chars - half] + raw[len(raw) - half :]
    return [BEGIN_WORD, *(byte + 1 for byte in raw), END_WORD]


def _chance(word: str, dim: int, seed: int) -> np.ndarray:
    digest = hashlib.blake2b(f"{seed} {word}".encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).standard_normal(dim, dtype=np.float32)
