"""How well a layer keeps the senses of a word apart: cosines within and between them, and the nearest other use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmo.embed.pool import normalize

_TIE = 1e-5  # cosines this near to the best count as equal: without context, all uses of a word are


@dataclass(frozen=True)
class Separation:
    """Of one word in one layer."""

    within: float  # mean cosine of two uses in the same sense
    between: float  # mean cosine of two uses in different senses
    nearest: float  # share of uses whose nearest other use has the same sense; of equally near ones, their share


def separation(vectors: np.ndarray, senses: Sequence[str]) -> Separation:
    """Of the vectors (N, D) of a word's uses; each sense has at least two of them."""
    unit = normalize(vectors)
    cosines = unit @ unit.T  # (N, N)
    same = np.array([[a == b for b in senses] for a in senses])  # (N, N)
    others = ~np.eye(len(senses), dtype=bool)  # (N, N)
    hits = []
    for row in range(len(senses)):
        best = cosines[row][others[row]].max()
        nearest = others[row] & (cosines[row] >= best - _TIE)
        hits.append(same[row][nearest].mean())
    return Separation(
        within=float(cosines[same & others].mean()),
        between=float(cosines[~same].mean()),
        nearest=float(np.mean(hits)),
    )
