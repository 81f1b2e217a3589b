"""Pooling: one vector per sentence from the vectors of its tokens, without padding and boundaries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from elmo.errors import ConfigError


def _mean(vectors: np.ndarray) -> np.ndarray:
    mean: np.ndarray = vectors.mean(axis=-2, dtype=np.float32)
    return mean


def _max(vectors: np.ndarray) -> np.ndarray:
    maximum: np.ndarray = vectors.max(axis=-2)
    return maximum


POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"mean": _mean, "max": _max}


def pool(vectors: np.ndarray, pooling: str) -> np.ndarray:
    """(n, D) to (D,), or (K, n, D) to (K, D). A sentence without tokens has the zero vector."""
    check_pooling(pooling)
    if vectors.shape[-2] == 0:
        return np.zeros(vectors.shape[:-2] + vectors.shape[-1:], dtype=vectors.dtype)
    return POOLINGS[pooling](vectors).astype(vectors.dtype, copy=False)


def check_pooling(pooling: str) -> None:
    """Raises ConfigError if there is no pooling of that name."""
    if pooling not in POOLINGS:
        raise ConfigError(f"pooling is {pooling!r}; expected {' or '.join(POOLINGS)}.")


def normalize(vectors: np.ndarray) -> np.ndarray:
    """The rows scaled to length one; zero rows stay zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)
