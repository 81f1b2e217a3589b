"""Artificial text for speed measurements: words drawn by Zipf's law, so that about as many repeat as in real text.

`train.step_timing` and `benchmarks/pretrain.py` train on such batches; no text file is read for them.
"""

from __future__ import annotations

import numpy as np

from elmo.pretrain.data.stream import Direction, LMBatch
from elmo.pretrain.data.type_table import char_rows

LETTERS = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", dtype=np.uint8)
SENTENCE_LENGTH = 25  # mean number of positions


def word_rows(vocab_size: int, max_chars: int = 50) -> np.ndarray:
    """The character ids of artificial words, most frequent first, (V, C).

    Frequent words are short and rare ones long, 2 to about 12 letters, as in text.
    """
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.normal(2 + 0.7 * np.log(np.arange(1, vocab_size + 1)), 1.5), 1, 20).astype(np.int64)
    ends = np.cumsum(lengths)
    letters = LETTERS[rng.integers(len(LETTERS), size=int(ends[-1]))].tobytes()
    words = [letters[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]
    return char_rows(words, max_chars)


def zipf_ids(vocab_size: int, num_tokens: int, seed: int = 1) -> np.ndarray:
    """The word ids of an artificial text, (num_tokens,) int32; id 0 is the most frequent word."""
    uniform = np.random.default_rng(seed).random(num_tokens)
    ranks = np.exp(uniform * np.log(vocab_size + 1)).astype(np.int32)
    ids: np.ndarray = np.minimum(ranks - 1, vocab_size - 1)
    return ids


def make_batches(
    ids: np.ndarray, num_rows: int, num_steps: int, num_batches: int, *, reset: float = 1.0
) -> list[LMBatch]:
    """Training batches from random places of a text of word ids; `reset`: the share of sentences with a zero state."""
    rng, size = np.random.default_rng(2), num_rows * num_steps

    def random_direction() -> Direction:
        start = rng.integers(max(1, len(ids) - size - 1))
        text = np.resize(ids[start : start + size + 1], size + 1)
        shape = num_rows, num_steps
        resets = rng.random(shape) < reset / SENTENCE_LENGTH
        return Direction(text[:-1].reshape(shape), text[1:].reshape(shape), resets, None)

    return [LMBatch(random_direction(), random_direction()) for _ in range(num_batches)]
