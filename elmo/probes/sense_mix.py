"""Cosines between words and senses on combined layers: on weighted sums of layers and on their concatenation.

The cosine of two weighted sums is a ratio of quadratic forms in the weights. Their matrices (L, L) are computed once
per pair of a word and a sense; each set of weights then costs a few operations per pair, independent of D.
"""

from __future__ import annotations

from itertools import product

import numpy as np

BLOCK = 4096  # pairs per step


def layer_weight_grid(num_layers: int) -> np.ndarray:
    """All non-negative layer weights on a grid that sum to 1, (G, L): in tenths up to three layers, else in quarters.

    The most uniform weights come first, so that the first of several equally good ones is the most uniform.
    """
    steps = 10 if num_layers <= 3 else 4
    shares = [s for s in product(range(steps + 1), repeat=num_layers - 1) if sum(s) <= steps]
    weights = np.array([(*s, steps - sum(s)) for s in shares], dtype=np.float64) / steps  # (G, L)
    return weights[np.argsort((weights**2).sum(1), kind="stable")]


class PairProducts:
    """Dot products between the layers of words and senses, from which the cosines of P pairs are computed."""

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
            block = slice(start, start + BLOCK)
            self.between[block] = words[of_word[block]] @ senses[of_sense[block]].swapaxes(1, 2)
        self.of_word = (words @ words.swapaxes(1, 2))[of_word]  # (P, L, L)
        self.of_sense = (senses @ senses.swapaxes(1, 2))[of_sense]  # (P, L, L)

    def mixed(self, weights: np.ndarray) -> np.ndarray:
        """Cosines of the weighted sums of layers, (P,)."""

        def quadratic_form(matrices: np.ndarray) -> np.ndarray:
            values: np.ndarray = np.einsum("k,pkl,l->p", weights, matrices, weights, optimize=True)
            return values

        norms = np.sqrt(np.maximum(quadratic_form(self.of_word) * quadratic_form(self.of_sense), 1e-18))
        cosines: np.ndarray = quadratic_form(self.between) / norms
        return cosines

    def concatenated(self) -> np.ndarray:
        """Cosines of the concatenated layers, each scaled to length 1: the mean of the cosines of the layers, (P,)."""

        def diagonal(matrices: np.ndarray) -> np.ndarray:
            return np.diagonal(matrices, axis1=1, axis2=2)  # (P, L)

        norms = np.sqrt(np.maximum(diagonal(self.of_word) * diagonal(self.of_sense), 1e-18))
        cosines: np.ndarray = (diagonal(self.between) / norms).mean(1)
        return cosines
