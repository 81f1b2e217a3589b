"""A corpus indexed once for many questions: the unit vector of every word in a file, mapped by each later query.

The file's name is a checksum of the model, the layers and the text: another model or text gets a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from elmo.analysis.neighbors import embedded
from elmo.embed.disk_cache import cache_path, cached_array
from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec, choose_layers
from elmo.embed.model_checksum import vectors_checksum
from elmo.embed.pool import normalize
from elmo.progress import Progress


class CorpusIndex:
    """Sentences and their words' vectors, (N, D) in float16, one word after the other."""

    def __init__(self, sentences: Sequence[tuple[str, ...]], vectors: np.ndarray, path: Path) -> None:
        self.sentences, self.vectors, self.path = sentences, vectors, path

    def occurrences(self, word: str | None = None) -> Iterator[tuple[int, tuple[str, ...], np.ndarray]]:
        """What `neighbors.nearest` reads: all sentences, or those that have the word."""
        end = 0
        for line, tokens in enumerate(self.sentences):
            begin, end = end, end + len(tokens)
            if tokens and (word is None or word in tokens):
                yield line, tokens, self.vectors[begin:end]


def index_corpus(
    embedder: Embedder,
    sentences: Sequence[tuple[str, ...]],
    folder: Path,
    *,
    layers: LayerSpec = "top",
    show: bool | None = None,
) -> CorpusIndex:
    """The index of these sentences in a folder: opened where it is there, otherwise made, whole or not at all."""
    num_words = sum(map(len, sentences))

    def fill(kept: np.ndarray) -> None:
        end = 0
        with Progress("indexing", num_words, show=show) as progress:
            for _, tokens, vectors in embedded(embedder, enumerate(sentences), layers):
                begin, end = end, end + len(tokens)
                kept[begin:end] = normalize(vectors)
                progress.advance(len(tokens))

    weights = choose_layers(layers, embedder.num_layers).matrix.tolist()
    path = cache_path(folder, {"vectors": vectors_checksum(embedder), "layers": weights, "unit": True}, sentences)
    return CorpusIndex(sentences, cached_array(path, (num_words, embedder.dim), fill), path)
