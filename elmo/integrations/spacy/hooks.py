"""Vectors and similarity of spaCy's documents, spans and tokens from ELMo, through spaCy's user hooks.

The vector of a token is its row of `doc.tensor`; that of a span or document is the mean over its tokens that are not
whitespace. Similarity is the cosine, and 0 if one of the vectors is zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from elmo.errors import ConfigError, DataError


def set_hooks(doc: Any) -> Any:
    """Lets a document, its spans and its tokens take their vectors from `doc.tensor` as it is now; returns the doc.

    The component does this for every document. spaCy does not store hooks with a document (its warning W109): call it
    for documents that come from `nlp.pipe(n_process=2)`, `Doc.from_bytes` or `Doc.from_disk`.
    """
    if doc.tensor.ndim != 2 or len(doc.tensor) != len(doc):
        raise DataError(
            f"doc.tensor has shape {tuple(doc.tensor.shape)}; expected a row for each of the {len(doc)} tokens.",
            "The component 'elmo' sets it and doc.to_bytes() stores it; a DocBin does not.",
        )
    hooks = VectorHooks(doc.tensor)
    for target, vector in (
        (doc.user_hooks, hooks.mean),
        (doc.user_span_hooks, hooks.mean),
        (doc.user_token_hooks, hooks.row),
    ):
        target["vector"] = vector
        target["vector_norm"] = _norm
        target["has_vector"] = _has_vector
        target["similarity"] = _cosine
    return doc


class VectorHooks:
    """The vectors of one document. It holds the array, because a later component may set another `doc.tensor`."""

    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors  # (n, D)

    def row(self, token: Any) -> np.ndarray:
        """The vector of a token, (D,)."""
        vector: np.ndarray = self._rows(token.doc)[token.i]
        return vector

    def mean(self, tokens: Any) -> np.ndarray:
        """The mean vector of a span's or document's tokens that are not whitespace, (D,); zero if there are none."""
        rows = [token.i for token in tokens if not token.is_space]
        vectors = self._rows(getattr(tokens, "doc", tokens))
        mean: np.ndarray = vectors[rows].mean(axis=0) if rows else vectors.sum(axis=0) * 0
        return mean

    def _rows(self, doc: Any) -> np.ndarray:
        if len(self._vectors) != len(doc):
            raise DataError(
                f"The document has {len(doc)} tokens and had {len(self._vectors)} when its vectors were computed.",
                "Put the component 'elmo' after those that merge or split tokens.",
            )
        return self._vectors


def _norm(item: Any) -> float:
    return float(np.linalg.norm(item.vector))


def _has_vector(item: Any) -> bool:
    return bool(np.any(item.vector))


def _cosine(item: Any, other: Any) -> float:
    a, b = item.vector, other.vector
    if a.shape != b.shape:
        raise ConfigError(
            f"The vectors have widths {a.shape[-1]} and {b.shape[-1]}; expected the same width.",
            "Compare documents, spans and tokens of pipelines with the same model and layers.",
        )
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale else 0.0
