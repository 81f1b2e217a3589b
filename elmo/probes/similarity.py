"""How well cosines of words in context agree with people: Spearman's and Pearson's correlation, layer by layer.

Nothing is fitted. A place of several words has the mean of their vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elmo.probes.judgements import read_judgements
from elmo.probes.layer_averages import average_names, averages
from elmo.probes.record import make_record
from elmo.probes.vector_source import VectorSource
from elmo.probes.wic import pair_cosines
from elmo.progress import Progress


def probe_similarity(
    source: VectorSource, path: str | Path, *, limit: int | None = None, show: bool | None = None
) -> dict[str, Any]:
    """A record with each view's two correlations, for plain vectors and for centred ones (their common mean away)."""
    pairs = read_judgements(path, limit=limit)
    places = [place for pair in pairs for place in pair.places]
    found = np.zeros((len(places), source.num_layers, source.dim), dtype=np.float32)
    with Progress("embedding", len(places), unit="contexts", show=show) as progress:
        for row, layers in enumerate(source.layers(place.tokens for place in places)):  # (L, n, D)
            found[row] = layers[:, places[row].begin : places[row].end].mean(1)
            progress.advance(1)
    vectors = found.reshape(len(pairs), 2, source.num_layers, source.dim)
    scores = np.array([pair.score for pair in pairs])
    views: dict[str, dict[str, Any]] = {}
    for form, shift in (("plain", np.zeros_like(found[0])), ("centred", found.mean(0))):
        cosines = pair_cosines(averages(vectors - shift))  # (N, A)
        for column, name in enumerate(average_names(source.num_layers)):
            values = cosines[:, column]
            both = {"spearman": spearman(values, scores), "pearson": pearson(values, scores)}
            views.setdefault(name, {})[form] = both
    return make_record(
        kind="similarity",
        source=source,
        files={"judgements": Path(path)},
        settings={"limit": limit},
        counts={"pairs": len(pairs)},
        scores={"metric": "correlation", "views": views},
    )


def pearson(one: np.ndarray, other: np.ndarray) -> float:
    """The linear correlation; 0 where one side does not vary."""
    a, b = one - one.mean(), other - other.mean()
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 1e-12 else 0.0


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """The correlation of ranks; equal values share the mean of their ranks."""
    return pearson(ranks(one), ranks(other))


def ranks(values: np.ndarray) -> np.ndarray:
    """Each value's rank from 1, (N,); equal ones have the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)  # the last rank of each different value
    found: np.ndarray = (ends - (counts - 1) / 2)[which]
    return found
