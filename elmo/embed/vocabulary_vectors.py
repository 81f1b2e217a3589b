"""One vector per word of a vocabulary: without context, or the mean over the word's occurrences in a corpus.

These are static word vectors, for tools that read such vectors: gensim, the Embedding Projector, and everything that
reads word2vec's formats. `elmo export words` writes them to files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo.embed.corpus_index import embed_sentences
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.embed.neighbors import Corpus, corpus_sentences
from elmo.errors import ConfigError, DataError
from elmo.progress import Progress
from elmo.settings import check_count
from elmo.text.lines import read_lines
from elmo.text.vocab import BOS, EOS, UNK

MAX_WORDS = 50_000  # the default; sums of 768 numbers in float64 are 0.3 GB
WORDS_PER_CALL = 4096


@dataclass(frozen=True, kw_only=True)
class VocabularyVectors:
    """Distinct words with vectors (V, D), float32."""

    words: list[str]
    vectors: np.ndarray
    counts: np.ndarray | None = None  # (V,) occurrences in the corpus, or in the model's training text; None: unknown
    absent: tuple[str, ...] = ()  # words that were asked for and do not occur in the corpus


def vocabulary_vectors(
    embedder: Embedder,
    words: Sequence[str] | None = None,  # None: the words of the corpus, or else of the model's vocabulary
    corpus: Corpus | None = None,  # text with one sentence per line, or texts; None: vectors without context
    *,
    layers: LayerSpec | None = None,  # with a corpus; None: average
    max_words: int = MAX_WORDS,  # the most frequent ones, if `words` is None
    min_count: int = 1,  # occurrences of a word in the corpus, if `words` is None
    split: bool = False,  # lines and strings of the corpus are paragraphs, which are split into sentences
    encoding: str = "utf-8",
    show: bool | None = None,
) -> VocabularyVectors:
    """The vectors of words: of the token layer (P wide: layer 0 repeats them for each direction), or means in a corpus.

    Without `words`, the corpus is read twice: first its words are counted.
    """
    max_words, min_count = check_count("max_words", max_words), check_count("min_count", min_count)
    chosen = None if words is None else list(dict.fromkeys(words))
    if isinstance(words, str) or (chosen is not None and not chosen):
        raise ConfigError(f"words is {words!r}; expected a list of at least one word.")
    if corpus is None:
        if layers is not None:
            raise ConfigError("Layers need a corpus: without context there is only the token layer.", "Name a corpus.")
        counts = None
        if chosen is None:
            chosen, counts = _model_words(embedder, max_words)
        return VocabularyVectors(words=chosen, vectors=_token_vectors(embedder, chosen, show), counts=counts)

    def read_corpus() -> Iterator[tuple[str, ...]]:
        return corpus_sentences(embedder, corpus, split=split, encoding=encoding)

    if chosen is None:
        if str(corpus) == "-" or isinstance(corpus, Iterator):
            raise ConfigError(
                "The corpus can be read only once, and its words are not known before it is read.",
                "Give a file instead of a stream, or name the words (--words).",
            )
        chosen = _frequent_words(read_corpus(), max_words, min_count, show)
    return _mean_vectors(embedder, chosen, read_corpus(), "average" if layers is None else layers, show)


def read_word_list(path: str | Path, encoding: str = "utf-8") -> list[str]:
    """The distinct words of a file with one word per line; blank lines are left out."""
    words = list(dict.fromkeys(word for line in read_lines(path, encoding=encoding) if (word := line.strip())))
    if not words:
        raise DataError(f"{path} has no words.", "Expected one word per line.")
    return words


def _model_words(embedder: Embedder, max_words: int) -> tuple[list[str], np.ndarray | None]:
    """The most frequent words of the model's vocabulary, with their counts if the model has them."""
    vocab = embedder.vocab
    if vocab is None:
        raise ConfigError(
            f"The model {embedder.name!r} has no vocabulary, because it reads characters and has no softmax.",
            "Name the words (--words) or a corpus (--corpus).",
        )
    special = {BOS, EOS, UNK}  # which the token layer would spell as ordinary words
    rows = [row for row, word in enumerate(vocab.words) if word not in special][:max_words]
    return [vocab.words[row] for row in rows], None if vocab.counts is None else vocab.counts[rows]


def _token_vectors(embedder: Embedder, words: Sequence[str], show: bool | None) -> np.ndarray:
    parts = []
    with Progress("words", len(words), show=show) as progress:
        for begin in range(0, len(words), WORDS_PER_CALL):
            chunk = words[begin : begin + WORDS_PER_CALL]
            table, _ = embedder.words.table([chunk])  # (2 + N, P), after two rows for the boundaries of a sentence
            parts.append(table[2:].float().cpu().numpy())
            progress.advance(len(chunk))
    return np.concatenate(parts)


def _frequent_words(
    sentences: Iterator[tuple[str, ...]], max_words: int, min_count: int, show: bool | None
) -> list[str]:
    counts: Counter[str] = Counter()
    with Progress("counting", None, show=show) as progress:
        for tokens in sentences:
            counts.update(tokens)
            progress.advance(len(tokens))
    words = [word for word, count in counts.most_common(max_words) if count >= min_count]
    if not words:
        seen = f"{len(counts):,} words, none of them {min_count:,} times" if counts else "no words"
        raise DataError(f"The corpus has {seen}.", "Give a text with one sentence per line.")
    return words


def _mean_vectors(
    embedder: Embedder, words: Sequence[str], sentences: Iterator[tuple[str, ...]], layers: LayerSpec, show: bool | None
) -> VocabularyVectors:
    layer_choice = choose_layers(layers, embedder.num_layers)
    if layer_choice.stacked or embedder.state == "carry":
        raise ConfigError(
            f"Means over a corpus cannot be computed with layers {layers!r} and state {embedder.state!r}.",
            "They need one vector per word that depends only on its sentence: one layer or mix, state reset or warm.",
        )
    rows = {word: row for row, word in enumerate(words)}
    sums = np.zeros((len(words), *layer_choice.shape(embedder.dim)))  # (V, D)
    counts = np.zeros(len(words), dtype=np.int64)
    with Progress("embedding", None, show=show) as progress:

        def sentences_with_words() -> Iterator[tuple[int, tuple[str, ...]]]:
            for number, tokens in enumerate(sentences):
                progress.advance(len(tokens))
                if not rows.keys().isdisjoint(tokens):
                    yield number, tokens

        for _, tokens, vectors in embed_sentences(embedder, sentences_with_words(), layers):
            positions = [position for position, token in enumerate(tokens) if token in rows]
            numbers = [rows[tokens[position]] for position in positions]
            np.add.at(sums, numbers, vectors[positions].astype(np.float64))
            np.add.at(counts, numbers, 1)
    found = np.flatnonzero(counts)
    if not len(found):
        raise DataError(f"None of the {len(words):,} words occurs in the corpus.", "Are the words tokens of its text?")
    return VocabularyVectors(
        words=[words[row] for row in found.tolist()],
        vectors=(sums[found] / counts[found, None]).astype(np.float32),
        counts=counts[found],
        absent=tuple(words[row] for row in np.flatnonzero(counts == 0).tolist()),
    )
