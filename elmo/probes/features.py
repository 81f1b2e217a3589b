"""Vectors of whole texts in one pass over them, all layers at once, as an array (N, L, D) in float16.

In memory, or in a file that is mapped and used again when the same vectors are asked for the same sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmo.embed.disk_cache import cache_path, cached_array
from elmo.errors import DataError
from elmo.probes.vector_source import VectorSource
from elmo.progress import Progress

LARGEST = float(np.finfo(np.float16).max)


def gather(
    source: VectorSource,
    sentences: Sequence[Sequence[str]],
    *,
    cache: Path | None = None,  # folder to keep the vectors in
    label: str = "embedding",
    show: bool | None = None,
) -> np.ndarray:
    """Every word's layers, one word after the other, (N, L, D) in float16."""
    shape = (sum(map(len, sentences)), source.num_layers, source.dim)
    if cache is None:
        result = np.empty(shape, dtype=np.float16)
        _fill(result, source, sentences, label, show)
        return result
    path = cache_path(cache, source.identity(), sentences)
    return cached_array(path, shape, lambda mapped: _fill(mapped, source, sentences, label, show))


def _fill(
    result: np.ndarray, source: VectorSource, sentences: Sequence[Sequence[str]], label: str, show: bool | None
) -> None:
    end = 0
    with Progress(label, len(result), show=show) as progress:
        for vectors in source.layers(sentences):  # (L, n, D)
            begin, end = end, end + vectors.shape[1]
            if not np.all(np.abs(vectors) <= LARGEST):
                raise DataError(f"{source.name}: a vector holds numbers that are not finite or too large for float16.")
            result[begin:end] = vectors.swapaxes(0, 1)
            progress.advance(end - begin)
    assert end == len(result), "a source gives every word its vector"
