"""The word vectors of a corpus: streamed sentence by sentence, or stored in a memory-mapped file for many queries.

The name of the file is a checksum of the model, the layers and the text, so that another model or text gets its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from elmo.embed.disk_cache import cache_path, cached_array
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.embed.model_checksum import vectors_checksum
from elmo.embed.pool import normalize
from elmo.progress import Progress
from elmo.text.inputs import has_word

EmbeddedSentences = Iterable[tuple[int, tuple[str, ...], np.ndarray]]  # number of the sentence, tokens, vectors (N, D)


class CorpusIndex:
    """Sentences and the unit vectors of their words, (N, D) in float16, one word after the other."""

    def __init__(self, sentences: Sequence[tuple[str, ...]], vectors: np.ndarray, path: Path) -> None:
        self.sentences, self.vectors, self.path = sentences, vectors, path

    def embedded_sentences(self, word: str | None = None) -> Iterator[tuple[int, tuple[str, ...], np.ndarray]]:
        """All sentences with their vectors, or only those that contain the word, regardless of case."""
        end = 0
        for number, tokens in enumerate(self.sentences):
            begin, end = end, end + len(tokens)
            if tokens and (word is None or has_word(tokens, word)):
                yield number, tokens, self.vectors[begin:end]


def index_corpus(
    embedder: Embedder,
    sentences: Sequence[tuple[str, ...]],
    folder: Path,
    *,
    layers: LayerSpec = "top",
    show: bool | None = None,
) -> CorpusIndex:
    """The index of these sentences in a folder: opened if it exists, otherwise computed and written."""
    num_words = sum(map(len, sentences))

    def fill(array: np.ndarray) -> None:
        end = 0
        with Progress("indexing", num_words, show=show) as progress:
            for _, tokens, vectors in embed_sentences(embedder, enumerate(sentences), layers):
                begin, end = end, end + len(tokens)
                array[begin:end] = normalize(vectors)
                progress.advance(len(tokens))

    layer_choice = choose_layers(layers, embedder.num_layers)
    weights, shape = layer_choice.matrix.tolist(), (num_words, *layer_choice.shape(embedder.dim))
    path = cache_path(folder, {"vectors": vectors_checksum(embedder), "layers": weights, "unit": True}, sentences)
    return CorpusIndex(sentences, cached_array(path, shape, fill), path)


def embed_sentences(
    embedder: Embedder, sentences: Iterable[tuple[int, tuple[str, ...]]], layers: LayerSpec
) -> Iterator[tuple[int, tuple[str, ...], np.ndarray]]:
    """Numbered sentences with their vectors, streamed in constant memory; empty sentences are left out."""
    pending: deque[tuple[int, tuple[str, ...]]] = deque()  # read by the embedder, vectors not yet returned

    def tokens_of_sentences() -> Iterator[tuple[str, ...]]:
        for number, tokens in sentences:
            if tokens:
                pending.append((number, tokens))
                yield tokens

    for vectors in embedder.stream(tokens_of_sentences(), layers=layers):
        yield *pending.popleft(), vectors
