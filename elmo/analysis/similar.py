"""Questions about a word in sentences, answered from one pass over a corpus or from its index: `elmo similar`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo.analysis.corpus_index import index_corpus
from elmo.analysis.neighbors import Neighbor, Query, embedded, nearest, query_vectors
from elmo.analysis.static_neighbors import StaticNeighbor, token_neighbors
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec
from elmo.errors import DataError
from elmo.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Similar:
    """What a corpus has near the queries."""

    neighbours: list[list[Neighbor]]  # of each query, best first
    cosines: np.ndarray  # (Q, Q) of the queries with each other
    without_context: list[StaticNeighbor]  # in the token layer, of the first query's word
    num_sentences: int
    num_words: int


def similar(
    embedder: Embedder,
    queries: Sequence[Query],
    corpus: Iterable[tuple[str, ...]],
    *,
    layers: LayerSpec = "top",
    k: int = 10,
    word: str | None = None,  # only occurrences of this word
    index: Path | None = None,  # folder to keep the corpus's vectors in
    show: bool | None = None,
) -> Similar:
    """The k nearest occurrences of every query. Without an index the corpus is streamed, in constant memory."""
    asked = query_vectors(embedder, queries, layers)  # (Q, D)
    counts: Counter[str] = Counter()
    num_sentences = 0

    def counted() -> Iterator[tuple[str, ...]]:
        nonlocal num_sentences
        for tokens in corpus:
            counts.update(tokens)
            num_sentences += 1
            yield tokens

    if index is not None:
        made = index_corpus(embedder, list(counted()), index, layers=layers, show=show)
        found = nearest(queries, asked, made.occurrences(word), k=k, word=word)
    else:
        with Progress("reading", None, show=show) as progress:

            def wanted() -> Iterator[tuple[int, tuple[str, ...]]]:
                for number, tokens in enumerate(counted()):
                    progress.advance(len(tokens))
                    if word is None or word in tokens:
                        yield number, tokens

            found = nearest(queries, asked, embedded(embedder, wanted(), layers), k=k, word=word)
    if not counts:
        raise DataError("The corpus has no words.", "Give a text with one sentence a line.")
    return Similar(
        neighbours=found,
        cosines=asked @ asked.T,
        without_context=token_neighbors(embedder, queries[0].word, counts, k=k),
        num_sentences=num_sentences,
        num_words=counts.total(),
    )
