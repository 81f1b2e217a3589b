"""The nearest neighbours of a word: in context among the words of a corpus, and without context (paper table 4).

The corpus is streamed in constant memory, or read from an index that answers later queries without embedding it again.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo.embed.corpus_index import EmbeddedSentences, embed_sentences, index_corpus
from elmo.embed.display import html_table, marked_sentence
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.embed.pool import normalize
from elmo.errors import ConfigError, DataError
from elmo.progress import Progress
from elmo.settings import check_count
from elmo.text.inputs import (
    OneText,
    caseless,
    decomposed_warning,
    has_word,
    log_warnings,
    normalize_input,
    word_position,
)
from elmo.text.lines import read_lines

Corpus = str | Path | Iterable[OneText | Sequence[str]]  # a path, or texts
MAX_WORD_FORMS = 100_000  # the most frequent forms of a corpus are compared without context; this bounds memory


@dataclass(frozen=True)
class Query:
    """A word at a position in a sentence."""

    tokens: tuple[str, ...]
    position: int

    def __post_init__(self) -> None:
        if not 0 <= self.position < len(self.tokens):
            last = len(self.tokens) - 1
            raise ConfigError(f"The query is at position {self.position}; the sentence has positions 0 to {last}.")

    @property
    def word(self) -> str:
        return self.tokens[self.position]


@dataclass(frozen=True, order=True)
class Neighbor:
    """One occurrence of a word in the corpus, and its cosine to the query."""

    score: float
    line: int  # number of the sentence in the corpus, from 0
    position: int
    tokens: tuple[str, ...]

    @property
    def word(self) -> str:
        return self.tokens[self.position]


@dataclass(frozen=True)
class StaticNeighbor:
    """A word form, and the cosine of its vector without context to that of the query's word."""

    score: float
    word: str


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchResult:
    """The neighbours of some queries in a corpus."""

    queries: list[Query]
    neighbors: list[list[Neighbor]]  # of each query, best first
    cosines: np.ndarray  # (Q, Q), between the Q queries
    without_context: list[StaticNeighbor]  # of the first query's word, in the token layer
    num_sentences: int
    num_words: int

    @property
    def nearest(self) -> list[Neighbor]:
        """The neighbours of the first query, best first."""
        return self.neighbors[0]

    def __repr__(self) -> str:
        """The first query and its neighbours, one per line, with their cosines."""
        query = self.queries[0]
        head = f"{query.word!r} in {' '.join(query.tokens)!r}, among {self.num_words:,} words; nearest uses:"
        return "\n".join([head, *(f"{n.score:6.3f}  {n.word:15} {' '.join(n.tokens)}" for n in self.nearest)])

    def _repr_html_(self) -> str:
        """The same as a table for notebooks, with the words in bold."""
        query = self.queries[0]
        rows = [[f"{n.score:.3f}", f"{n.line:,}", marked_sentence(n.tokens, n.position)] for n in self.nearest]
        summary = f"{self.num_sentences:,} sentences, {self.num_words:,} words"
        table = html_table(["cosine", "line", "nearest uses"], rows)
        return f"<div><p>{marked_sentence(query.tokens, query.position)} ({summary})</p>{table}</div>"


def word_queries(embedder: Embedder, sentences: Iterable[OneText | Sequence[str]], word: str | int) -> list[Query]:
    """The word in each sentence; a number is its position in the first sentence, whose word is looked for in others."""
    queries: list[Query] = []
    for tokens in map(tuple, normalize_input(list(sentences), embedder.tokenize).sentences):
        queries.append(Query(tokens, word_position(tokens, queries[0].word if queries else word)))
    return queries


def corpus_sentences(
    embedder: Embedder, corpus: Corpus, *, split: bool = False, encoding: str = "utf-8"
) -> Iterator[tuple[str, ...]]:
    """The tokenised sentences of a text file with one sentence per line, or of texts, one by one.

    With `split`, a line or a string is a paragraph that is split into sentences.
    """
    texts = read_lines(corpus, encoding=encoding) if isinstance(corpus, (str, Path)) else corpus
    for text in texts:
        inputs = normalize_input([text], embedder.tokenize, split=split, rules=embedder.sentence_rules)
        yield from map(tuple, inputs.sentences)


def find_neighbors(
    embedder: Embedder,
    queries: Sequence[Query],
    corpus: Iterable[tuple[str, ...]],
    *,
    layers: LayerSpec = "top",
    k: int = 10,
    word: str | None = None,  # only occurrences of this word, regardless of case
    index: Path | None = None,  # folder in which the corpus's vectors are stored
    show: bool | None = None,
) -> SearchResult:
    """The k nearest occurrences to every query, in one pass over the corpus; a query itself is not a neighbour."""
    k = check_count("k", k)
    vectors = _query_vectors(embedder, queries, layers)  # (Q, D)
    counts: Counter[str] = Counter()
    num_sentences = 0

    def counted() -> Iterator[tuple[str, ...]]:
        nonlocal num_sentences
        for tokens in corpus:
            counts.update(tokens)
            num_sentences += 1
            yield tokens

    if index is not None:
        corpus_index = index_corpus(embedder, list(counted()), index, layers=layers, show=show)
        neighbors = _nearest(queries, vectors, corpus_index.embedded_sentences(word), k=k, word=word)
    else:
        with Progress("reading", None, show=show) as progress:

            def numbered() -> Iterator[tuple[int, tuple[str, ...]]]:
                for number, tokens in enumerate(counted()):
                    progress.advance(len(tokens))
                    if word is None or has_word(tokens, word):
                        yield number, tokens

            sentences = embed_sentences(embedder, numbered(), layers)
            neighbors = _nearest(queries, vectors, sentences, k=k, word=word)
    if not counts:
        raise DataError("The corpus has no words.", "Give a text with one sentence per line.")
    for where, texts in (("the query", [query.tokens for query in queries]), ("the corpus", [list(counts)])):
        warning = decomposed_warning(texts)
        log_warnings(warning and f"in {where}, {warning}")
    return SearchResult(
        queries=list(queries),
        neighbors=neighbors,
        cosines=vectors @ vectors.T,
        without_context=_token_layer_neighbors(embedder, queries[0].word, counts, k=k),
        num_sentences=num_sentences,
        num_words=counts.total(),
    )


def static_neighbors(
    word: str, words: Sequence[str], vectors: np.ndarray, query: np.ndarray, *, k: int = 10
) -> list[StaticNeighbor]:
    """The k words, with vectors (N, D), nearest to the query (D,), best first; `word` itself is left out."""
    scores = normalize(vectors) @ normalize(query)  # (N,)
    order = np.argsort(-scores, kind="stable")[: k + 1]
    return [StaticNeighbor(float(scores[row]), words[row]) for row in order if words[row] != word][:k]


def _token_layer_neighbors(embedder: Embedder, word: str, counts: Mapping[str, int], *, k: int) -> list[StaticNeighbor]:
    """Neighbours among a corpus's word forms in the token layer, which depends only on a word's characters."""
    forms = [form for form, _ in Counter(counts).most_common(MAX_WORD_FORMS)]
    table, rows = embedder.words.table([[word], forms])  # (2 + N, P): layer 0 repeats this for each direction
    vectors = table.float().cpu().numpy()
    words = list(rows)  # in the order of their rows, which follow two rows for the boundaries of a sentence
    return static_neighbors(word, words, vectors[2:], vectors[rows[word]], k=k)


def _query_vectors(embedder: Embedder, queries: Sequence[Query], layers: LayerSpec) -> np.ndarray:
    """The unit vectors of the queries, (Q, D)."""
    if embedder.state == "carry" or choose_layers(layers, embedder.num_layers).stacked:
        raise ConfigError(
            f"Neighbours cannot be found with state {embedder.state!r} and layers {layers!r}.",
            "They need one vector per word that depends only on its sentence: state reset or warm, one layer or mix.",
        )
    sentences = embedder.stream([query.tokens for query in queries], layers=layers)
    return normalize(np.stack([v[query.position] for v, query in zip(sentences, queries, strict=True)]))


def _nearest(
    queries: Sequence[Query], vectors: np.ndarray, sentences: EmbeddedSentences, *, k: int, word: str | None
) -> list[list[Neighbor]]:
    """For each query, with vectors (Q, D), its k nearest occurrences, best first."""
    heaps: list[list[Neighbor]] = [[] for _ in queries]  # the worst of each query's best k comes first
    form = None if word is None else caseless(word)
    for number, tokens, sentence_vectors in sentences:
        scores = normalize(sentence_vectors.astype(np.float32)) @ vectors.T  # (N, Q)
        if form is not None:
            scores[[caseless(token) != form for token in tokens]] = -np.inf
        for query, heap, column in zip(queries, heaps, scores.T, strict=True):
            if tokens == query.tokens:
                column[query.position] = -np.inf
            threshold = heap[0].score if len(heap) == k else -2.0  # -2 is below every cosine
            for position in np.flatnonzero(column >= threshold):
                neighbor = Neighbor(float(column[position]), number, int(position), tokens)
                if len(heap) < k:
                    heapq.heappush(heap, neighbor)
                else:
                    heapq.heappushpop(heap, neighbor)
    return [sorted(heap, reverse=True) for heap in heaps]
