"""Views of layers that need no fitting: each layer alone, and the mean of the layers from one of them to the top."""

from __future__ import annotations

import numpy as np


def average_names(num_layers: int) -> list[str]:
    """Three layers: 0, 1, 2, then 0-2 and 1-2."""
    alone = [str(layer) for layer in range(num_layers)]
    return alone + [f"{first}-{num_layers - 1}" for first in range(num_layers - 1)]


def averages(layers: np.ndarray) -> np.ndarray:
    """(..., L, D) to (..., A, D): the views of `average_names`, in that order."""
    num_layers = layers.shape[-2]
    means = [layers[..., first:, :].mean(-2, keepdims=True) for first in range(num_layers - 1)]
    return np.concatenate([layers, *means], axis=-2)
