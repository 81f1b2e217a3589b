"""A word in a sentence, and the words of a corpus whose contextual vectors lie nearest to it (paper table 4).

The corpus is streamed: memory holds the best so far and one window of sentences, whatever its length.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.embed.choice import LayerChoice, choose
from elmo.embed.embedder import Embedder
from elmo.embed.pool import normalize
from elmo.errors import ConfigError


@dataclass(frozen=True, order=True)
class Neighbor:
    """One occurrence of a word: its cosine to the query, where it stands, and its sentence."""

    score: float
    line: int  # number of the sentence in the corpus, from 0
    position: int
    tokens: tuple[str, ...]

    @property
    def word(self) -> str:
        return self.tokens[self.position]


def neighbors(
    embedder: Embedder,
    sentence: Sequence[str],
    position: int,
    corpus: Iterable[Sequence[str]],
    *,
    layers: LayerChoice = "top",
    k: int = 10,
    word: str | None = None,
) -> list[Neighbor]:
    """The k occurrences nearest to `sentence[position]`, best first; with `word`, only occurrences of that word."""
    if not 0 <= position < len(sentence):
        raise ConfigError(f"position {position} was asked for; the sentence has words 0 to {len(sentence) - 1}.")
    if embedder.state == "carry" or choose(layers, embedder.num_layers).stacked:
        raise ConfigError(
            f"Neighbours were asked for with state {embedder.state!r} and layers {layers!r}.",
            "They need one vector a word that depends on its sentence alone: state reset or warm, one layer or mix.",
        )
    query = normalize(next(iter(embedder.stream([sentence], layers=layers)))[position])  # (D,)
    return heapq.nlargest(k, _occurrences(embedder, query, corpus, layers, word, tuple(sentence), position))


def _occurrences(
    embedder: Embedder,
    query: np.ndarray,
    corpus: Iterable[Sequence[str]],
    layers: LayerChoice,
    word: str | None,
    itself: tuple[str, ...],
    position: int,
) -> Iterator[Neighbor]:
    kept: list[tuple[int, tuple[str, ...]]] = []

    def wanted() -> Iterator[Sequence[str]]:
        for line, tokens in enumerate(corpus):
            if tokens and (word is None or word in tokens):
                kept.append((line, tuple(tokens)))
                yield tokens

    for vectors in embedder.stream(wanted(), layers=layers):
        line, tokens = kept.pop(0)
        for place, score in enumerate(normalize(vectors) @ query):  # (n,)
            same_place = tokens == itself and place == position
            if (word is None or tokens[place] == word) and not same_place:
                yield Neighbor(float(score), line, place, tokens)
