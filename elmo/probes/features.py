"""Vectors of all words of a corpus, or of one span per sentence, from one pass over the text for all layers.

The vectors of a corpus are in memory, or in a memory-mapped cache file that is reused for the same model and sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmo.embed.disk_cache import cache_path, cached_array
from elmo.errors import DataError
from elmo.probes.vector_source import VectorSource
from elmo.progress import Progress

MAX_FLOAT16 = float(np.finfo(np.float16).max)


def corpus_vectors(
    source: VectorSource,
    sentences: Sequence[Sequence[str]],
    *,
    cache: Path | None = None,  # folder of the cache files; None: in memory
    label: str = "embedding",
    show: bool | None = None,
) -> np.ndarray:
    """The layers of every word, in the order of the text, (N, L, D) in float16."""
    shape = (sum(map(len, sentences)), source.num_layers, source.dim)
    if cache is None:
        vectors = np.empty(shape, dtype=np.float16)
        _fill(vectors, source, sentences, label, show)
        return vectors
    path = cache_path(cache, source.identity(), sentences)
    return cached_array(path, shape, lambda mapped: _fill(mapped, source, sentences, label, show))


def span_vectors(
    source: VectorSource,
    sentences: Sequence[Sequence[str]],
    spans: Sequence[tuple[int, int]],  # one per sentence: tokens begin:end
    *,
    unit: str = "sentences",  # what the progress bar counts
    show: bool | None = None,
) -> np.ndarray:
    """The layers of one span per sentence, (N, L, D) in float32; a span of several words has the mean of its words."""
    vectors = np.zeros((len(spans), source.num_layers, source.dim), dtype=np.float32)
    with Progress("embedding", len(spans), unit=unit, show=show) as progress:
        for row, layers in enumerate(source.layers(iter(sentences))):  # (L, n, D)
            begin, end = spans[row]
            vectors[row] = layers[:, begin:end].mean(1)
            progress.advance(1)
    return vectors


def _fill(
    vectors: np.ndarray, source: VectorSource, sentences: Sequence[Sequence[str]], label: str, show: bool | None
) -> None:
    end = 0
    with Progress(label, len(vectors), show=show) as progress:
        for layers in source.layers(sentences):  # (L, n, D)
            begin, end = end, end + layers.shape[1]
            if not np.all(np.abs(layers) <= MAX_FLOAT16):
                raise DataError(
                    f"{source.name}: a vector contains numbers that are not finite or are too large for float16."
                )
            vectors[begin:end] = layers.swapaxes(0, 1)
            progress.advance(end - begin)
    assert end == len(vectors), "a source yields one vector per word"
