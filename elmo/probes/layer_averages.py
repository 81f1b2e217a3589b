"""Views of the layers that need no training: each layer alone and means of several layers; cosines between them."""

from __future__ import annotations

import numpy as np


def layer_average_names(num_layers: int) -> list[str]:
    """Names of the views; for three layers: 0, 1, 2, then 0-2 and 1-2 (the mean of these layers)."""
    single_layers = [str(layer) for layer in range(num_layers)]
    return single_layers + [f"{first}-{num_layers - 1}" for first in range(num_layers - 1)]


def layer_averages(layers: np.ndarray) -> np.ndarray:
    """(..., L, D) to (..., A, D): the A views of `layer_average_names`, in the same order."""
    num_layers = layers.shape[-2]
    means = [layers[..., first:, :].mean(-2, keepdims=True) for first in range(num_layers - 1)]
    return np.concatenate([layers, *means], axis=-2)


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., D) scaled to length 1; zero vectors stay zero."""
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
    return unit


def pair_cosines(views: np.ndarray) -> np.ndarray:
    """Cosines between the two sides of each pair, (N, 2, A, D) to (N, A)."""
    unit = unit_vectors(views)
    cosines: np.ndarray = np.einsum("nad,nad->na", unit[:, 0], unit[:, 1])
    return cosines
