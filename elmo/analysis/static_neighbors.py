"""A word's neighbours without context, to stand beside those in context: one list for all senses (paper table 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.pool import normalize

MOST_WORDS = 100_000  # forms of a corpus that are compared, the most frequent: bounds memory


@dataclass(frozen=True)
class StaticNeighbor:
    """A word form and the cosine of its vector with the query's."""

    score: float
    word: str


def static_neighbors(
    word: str, words: Sequence[str], vectors: np.ndarray, query: np.ndarray, *, k: int = 10
) -> list[StaticNeighbor]:
    """The k words, vectors (N, D), nearest to the query (D,), best first; the word itself is no answer."""
    scores = normalize(vectors) @ normalize(query)  # (N,)
    order = np.argsort(-scores, kind="stable")[: k + 1]
    return [StaticNeighbor(float(scores[row]), words[row]) for row in order if words[row] != word][:k]


def token_neighbors(embedder: Embedder, word: str, counts: Mapping[str, int], *, k: int = 10) -> list[StaticNeighbor]:
    """Neighbours in the model's token layer, which sees a word's characters alone, among a corpus's word forms."""
    forms = [form for form, _ in Counter(counts).most_common(MOST_WORDS)]
    table, rows = embedder.words.table([[word], forms])  # (2 + N, P); layer 0 is this, once for each direction
    vectors = table.float().cpu().numpy()
    found = list(rows)  # in the order of their rows, after two for a sentence's boundaries
    return static_neighbors(word, found, vectors[2:], vectors[rows[word]], k=k)
