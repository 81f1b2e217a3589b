"""Layers of words and senses combined: cosines of weighted sums, for many weightings, and of all layers side by side.

The cosine of two weighted sums is a ratio of quadratic forms in the weights. Their matrices (L, L) are computed once
for each pair of a word and a sense; a weighting then costs a few operations a pair, whatever the vectors' width.
"""

from __future__ import annotations

from itertools import product

import numpy as np

BLOCK = 4096  # pairs whose products are made together


def weightings(num_layers: int) -> np.ndarray:
    """Every way to share 1 among the layers in equal parts, (G, L): in tenths for three layers, in quarters for more.

    The plain mean's neighbours come first, so that of equally good weightings the most even one is taken.
    """
    parts = 10 if num_layers <= 3 else 4
    shares = [s for s in product(range(parts + 1), repeat=num_layers - 1) if sum(s) <= parts]
    found = np.array([(*s, parts - sum(s)) for s in shares], dtype=np.float64) / parts  # (G, L)
    return found[np.argsort((found**2).sum(1), kind="stable")]


class PairProducts:
    """Words' and senses' layers, as the products their mixes' cosines are made of."""

    def __init__(
        self,
        words: np.ndarray,  # (N, L, D)
        senses: np.ndarray,  # (S, L, D)
        of_word: np.ndarray,  # (P,) the word of each pair
        of_sense: np.ndarray,  # (P,)
    ) -> None:
        L = words.shape[1]
        self.between = np.zeros((len(of_word), L, L), dtype=np.float32)
        for start in range(0, len(of_word), BLOCK):
            part = slice(start, start + BLOCK)
            self.between[part] = words[of_word[part]] @ senses[of_sense[part]].swapaxes(1, 2)
        self.of_word = (words @ words.swapaxes(1, 2))[of_word]  # (P, L, L)
        self.of_sense = (senses @ senses.swapaxes(1, 2))[of_sense]  # (P, L, L)

    def mixed(self, weights: np.ndarray) -> np.ndarray:
        """Cosines of the weighted sums of layers, (P,)."""

        def form(matrices: np.ndarray) -> np.ndarray:
            found: np.ndarray = np.einsum("k,pkl,l->p", weights, matrices, weights, optimize=True)
            return found

        return form(self.between) / np.sqrt(np.maximum(form(self.of_word) * form(self.of_sense), 1e-18))

    def side_by_side(self) -> np.ndarray:
        """Cosines of all layers one after the other, each at length one: the mean of the layers' cosines, (P,)."""

        def diagonal(matrices: np.ndarray) -> np.ndarray:
            return np.diagonal(matrices, axis1=1, axis2=2)  # (P, L)

        lengths = np.sqrt(np.maximum(diagonal(self.of_word) * diagonal(self.of_sense), 1e-18))
        found: np.ndarray = (diagonal(self.between) / lengths).mean(1)
        return found
