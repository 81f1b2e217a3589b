"""The word vocabulary of a run, the initial values of its word vectors, and the character ids of words.

The vocabulary is built once, from the data and the file of word vectors. Id 0 is padding, id 1 any unknown word. A word
is looked up as written, then in lower case. Characters need no vocabulary, because they are UTF-8 bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from elmo.tasks.word_vectors import WordVectors

PADDING, UNKNOWN = 0, 1
BEGIN_WORD, END_WORD, NUM_CHARS = 257, 258, 259  # bytes are 1 to 256, 0 is padding


class WordVocabulary:
    """Maps words to ids."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: word_id for word_id, word in enumerate(self.words, start=2)}

    def __len__(self) -> int:
        """The number of ids, including padding and unknown."""
        return len(self.words) + 2

    def id(self, word: str) -> int:
        """The id of the word as written, otherwise of its lower-case form, otherwise UNKNOWN."""
        word_id = self._ids.get(word)
        return self._ids.get(word.lower(), UNKNOWN) if word_id is None else word_id


def build_vocabulary(
    training: Iterable[Sequence[str]], other: Iterable[Sequence[str]], vectors: WordVectors | None, *, min_count: int
) -> WordVocabulary:
    """The vocabulary of the training sentences, the other sentences (dev and test) and the word vectors.

    It has the training words that occur `min_count` times or have a vector, the other words that have a vector, and all
    words of `vectors`. Without vectors, the other sentences add no word.
    """
    counts = Counter(token for sentence in training for token in sentence)
    row_of: Mapping[str, int] = vectors.row_of if vectors is not None else {}
    words = {w: None for w, n in counts.items() if n >= min_count or w in row_of or w.lower() in row_of}
    if vectors is not None:
        words.update(dict.fromkeys(t for s in other for t in s if t in row_of or t.lower() in row_of))
        words.update(dict.fromkeys(row_of))
    return WordVocabulary(sorted(words))


def initial_vectors(vocabulary: WordVocabulary, vectors: WordVectors | None, dim: int, seed: int) -> np.ndarray:
    """Initial values of the word embedding, (V, dim): the given vectors, otherwise random by word and seed.

    Random vectors have the standard deviation of the given vectors, so that known and unknown words have a similar
    norm.
    """
    scale = float(vectors.vectors.std()) if vectors is not None else 0.0
    scale = scale or dim**-0.5  # without given vectors the norm is about 1
    initial = np.zeros((len(vocabulary), dim), dtype=np.float32)  # (V, dim)
    initial[UNKNOWN] = _random_vector("", dim, seed) * scale
    for word_id, word in enumerate(vocabulary.words, start=2):
        vector = None if vectors is None else vectors.lookup(word)
        initial[word_id] = _random_vector(word, dim, seed) * scale if vector is None else vector
    return initial


def encode_chars(word: str, max_chars: int) -> list[int]:
    """The character ids of a word: begin, UTF-8 bytes, end. Of a longer word the middle bytes are removed."""
    raw = word.encode("utf-8", errors="surrogatepass")
    if len(raw) > max_chars:
        half = max_chars // 2
        raw = raw[: max_chars - half] + raw[len(raw) - half :]
    return [BEGIN_WORD, *(byte + 1 for byte in raw), END_WORD]


def _random_vector(word: str, dim: int, seed: int) -> np.ndarray:
    digest = hashlib.blake2b(f"{seed} {word}".encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).standard_normal(dim, dtype=np.float32)
