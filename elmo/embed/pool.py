"""Pooling: one vector per sentence from the vectors of its tokens, without padding and boundaries; and cosines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from elmo.errors import ConfigError

Vectors: TypeAlias = np.ndarray | Tensor | Sequence[np.ndarray] | Sequence[Tensor] | Sequence[Sequence[float]]


def _mean(vectors: np.ndarray) -> np.ndarray:
    mean: np.ndarray = vectors.mean(axis=-2, dtype=np.promote_types(vectors.dtype, np.float32))
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


def pool_documents(vectors: np.ndarray, num_sentences: Sequence[int], pooling: str) -> np.ndarray:
    """One vector per document, (N, D) or (N, K, D), from the vectors of all sentences, (S, D) or (S, K, D)."""
    ends = np.cumsum([0, *num_sentences])
    by_document = np.split(vectors, ends[1:-1]) if len(num_sentences) else []
    pooled = [pool(np.moveaxis(group, 0, -2), pooling) for group in by_document]  # (D,) or (K, D)
    return np.stack(pooled) if pooled else vectors[:0]


def check_pooling(pooling: str) -> None:
    """Raises ConfigError if there is no pooling of that name."""
    if pooling not in POOLINGS:
        raise ConfigError(f"pooling is {pooling!r}; expected {' or '.join(POOLINGS)}.")


def normalize(vectors: np.ndarray) -> np.ndarray:
    """The rows scaled to length one; zero rows stay zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)


def join_layers(vectors: np.ndarray) -> np.ndarray:
    """(..., K, D) to (..., K * D): K vectors, each scaled to length one, side by side."""
    return normalize(vectors).reshape(*vectors.shape[:-2], -1).astype(vectors.dtype, copy=False)


def given_vectors(value: Any) -> Tensor | None:
    """Vectors as a tensor: from a tensor, an array of any layout, or a list of these or of numbers; None for texts."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return torch.stack(list(value))
    if isinstance(value, (list, tuple)) and value and _is_numeric(value[0]):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return None
    return torch.from_numpy(np.require(value, requirements=["C", "W"]))  # a table of pandas gives a read-only array


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of all rows of `a` (N, D) with all rows of `b` (M, D), (N, M); a zero row has cosine 0."""
    rows_a, rows_b = _unit_rows(a, b)
    return rows_a @ rows_b.t()


def cosine_pairs(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of each row of `a` with the same row of `b`, (N,)."""
    if len(a) != len(b):
        raise ConfigError(f"There are {len(a):,} and {len(b):,} vectors; pairs need as many of each.")
    rows_a, rows_b = _unit_rows(a, b)
    return (rows_a * rows_b).sum(dim=-1)


def _unit_rows(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.shape[-1] != b.shape[-1]:
        raise ConfigError(f"The vectors have widths {a.shape[-1]} and {b.shape[-1]}; expected the same width.")
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)  # never less precise than that
    a, b = a.to(dtype), b.to(device=a.device, dtype=dtype)
    return torch.nn.functional.normalize(a, dim=-1), torch.nn.functional.normalize(b, dim=-1)


def _is_numeric(item: Any) -> bool:
    if isinstance(item, np.ndarray):
        return bool(item.dtype.kind == "f")
    first = item[0] if isinstance(item, (list, tuple)) and item else item
    return isinstance(first, (float, np.floating))
