"""A word in a sentence, and the words of a corpus whose contextual vectors lie nearest to it (paper table 4).

The corpus is streamed: memory holds the best so far and one window of sentences, whatever its length. `corpus_index`
keeps the vectors for many questions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.embed.pool import normalize
from elmo.errors import ConfigError

Occurrences = Iterable[tuple[int, tuple[str, ...], np.ndarray]]  # a sentence's number, its tokens, its vectors (n, D)


@dataclass(frozen=True)
class Query:
    """A word where it stands in a sentence."""

    tokens: tuple[str, ...]
    position: int

    def __post_init__(self) -> None:
        if not 0 <= self.position < len(self.tokens):
            last = len(self.tokens) - 1
            raise ConfigError(f"position {self.position} was asked for; the sentence has words 0 to {last}.")

    @property
    def word(self) -> str:
        return self.tokens[self.position]


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
    layers: LayerSpec = "top",
    k: int = 10,
    word: str | None = None,
) -> list[Neighbor]:
    """The k occurrences nearest to `sentence[position]`, best first; with `word`, only occurrences of that word."""
    query = Query(tuple(sentence), position)
    vectors = query_vectors(embedder, [query], layers)
    having = ((line, tuple(tokens)) for line, tokens in enumerate(corpus) if word is None or word in tokens)
    return nearest([query], vectors, embedded(embedder, having, layers), k=k, word=word)[0]


def query_vectors(embedder: Embedder, queries: Sequence[Query], layers: LayerSpec) -> np.ndarray:
    """The queries' vectors at length one, (Q, D)."""
    if embedder.state == "carry" or choose_layers(layers, embedder.num_layers).stacked:
        raise ConfigError(
            f"Neighbours were asked for with state {embedder.state!r} and layers {layers!r}.",
            "They need one vector a word that depends on its sentence alone: state reset or warm, one layer or mix.",
        )
    found = embedder.stream([query.tokens for query in queries], layers=layers)
    return normalize(np.stack([v[query.position] for v, query in zip(found, queries, strict=True)]))


def embedded(embedder: Embedder, corpus: Iterable[tuple[int, tuple[str, ...]]], layers: LayerSpec) -> Occurrences:
    """Numbered sentences with their vectors, streamed; those without tokens are left out."""
    waiting: list[tuple[int, tuple[str, ...]]] = []

    def sentences() -> Iterator[tuple[str, ...]]:
        for line, tokens in corpus:
            if tokens:
                waiting.append((line, tokens))
                yield tokens

    for vectors in embedder.stream(sentences(), layers=layers):
        line, tokens = waiting.pop(0)
        yield line, tokens, vectors


def nearest(
    queries: Sequence[Query], vectors: np.ndarray, corpus: Occurrences, *, k: int = 10, word: str | None = None
) -> list[list[Neighbor]]:
    """For each query, vectors (Q, D), its k nearest occurrences, best first, in one pass; never the query itself."""
    best: list[list[Neighbor]] = [[] for _ in queries]  # heaps: the worst of the kept ones first
    for line, tokens, found in corpus:
        scores = normalize(found.astype(np.float32)) @ vectors.T  # (n, Q)
        if word is not None:
            scores[[token != word for token in tokens]] = -np.inf
        for query, heap, column in zip(queries, best, scores.T, strict=True):
            if tokens == query.tokens:
                column[query.position] = -np.inf
            floor = heap[0].score if len(heap) == k else -2.0  # below every cosine
            for place in np.flatnonzero(column >= floor):
                one = Neighbor(float(column[place]), line, int(place), tokens)
                if len(heap) < k:
                    heapq.heappush(heap, one)
                else:
                    heapq.heappushpop(heap, one)
    return [sorted(heap, reverse=True) for heap in best]
