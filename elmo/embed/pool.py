"""One vector a sentence from its tokens' vectors; only real tokens count, never padding or boundaries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from elmo.errors import ConfigError


def _mean(vectors: np.ndarray) -> np.ndarray:
    return vectors.mean(axis=-2, dtype=np.float32)


def _max(vectors: np.ndarray) -> np.ndarray:
    return vectors.max(axis=-2)


POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"mean": _mean, "max": _max}


def pool(vectors: np.ndarray, pooling: str) -> np.ndarray:
    """(n, D) to (D,), or (L+1, n, D) to (L+1, D). A sentence without tokens is the zero vector."""
    check_pooling(pooling)
    if vectors.shape[-2] == 0:
        return np.zeros(vectors.shape[:-2] + vectors.shape[-1:], dtype=vectors.dtype)
    return POOLINGS[pooling](vectors).astype(vectors.dtype, copy=False)


def check_pooling(pooling: str) -> None:
    """Refuses a pooling that does not exist."""
    if pooling not in POOLINGS:
        raise ConfigError(f"pooling is {pooling!r}; expected {' or '.join(POOLINGS)}.")


def normalize(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length one; zero rows stay zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)
