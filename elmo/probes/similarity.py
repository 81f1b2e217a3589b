"""Similarity probe: correlation between cosines of words in context and human judgements, for each layer.

Nothing is trained. The vector of several words is the mean of their vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elmo.probes.features import span_vectors
from elmo.probes.judgements import read_judgements
from elmo.probes.layer_averages import layer_average_names, layer_averages, pair_cosines
from elmo.probes.record import probe_record
from elmo.probes.vector_source import VectorSource


def probe_similarity(
    source: VectorSource, path: str | Path, *, limit: int | None = None, show: bool | None = None
) -> dict[str, Any]:
    """Returns a record with both correlations of each view, for plain and for centred vectors (minus their mean)."""
    pairs = read_judgements(path, limit=limit)
    words = [word for pair in pairs for word in pair.words]
    spans = [(word.begin, word.end) for word in words]
    vectors = span_vectors(source, [word.tokens for word in words], spans, unit="contexts", show=show)  # (2N, L, D)
    paired = vectors.reshape(len(pairs), 2, source.num_layers, source.dim)  # (N, 2, L, D)
    scores = np.array([pair.score for pair in pairs])
    views: dict[str, dict[str, Any]] = {}
    for form, shift in (("plain", np.zeros_like(vectors[0])), ("centred", vectors.mean(0))):
        cosines = pair_cosines(layer_averages(paired - shift))  # (N, A)
        for column, name in enumerate(layer_average_names(source.num_layers)):
            values = cosines[:, column]
            correlations = {"spearman": spearman(values, scores), "pearson": pearson(values, scores)}
            views.setdefault(name, {})[form] = correlations
    return probe_record(
        kind="similarity",
        source=source,
        files={"judgements": Path(path)},
        settings={"limit": limit},
        counts={"pairs": len(pairs)},
        scores={"metric": "correlation", "views": views},
    )


def pearson(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's linear correlation; 0 if one side is constant."""
    a, b = one - one.mean(), other - other.mean()
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm > 1e-12 else 0.0


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation; equal values get the mean of their ranks."""
    return pearson(ranks(one), ranks(other))


def ranks(values: np.ndarray) -> np.ndarray:
    """The rank of each value, from 1, (N,); equal values get the mean of their ranks."""
    _, indices, counts = np.unique(values, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(counts)  # of each distinct value
    mean_ranks: np.ndarray = (last_ranks - (counts - 1) / 2)[indices]
    return mean_ranks
