"""How alike the occurrences of a word are, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.layer_choice import LayerSpec
from elmo.embed.pool import normalize


def occurrence_similarity(
    embedder: Embedder, sentences: Sequence[Sequence[str]], word: str, layers: LayerSpec
) -> np.ndarray:
    """Cosines between the first occurrences of a word in each sentence that has it, (N, N)."""
    having = [sentence for sentence in sentences if word in sentence]
    vectors = embedder.stream(having, layers=layers)
    found = np.stack([v[list(s).index(word)] for v, s in zip(vectors, having, strict=True)])  # (N, D)
    unit = normalize(found)
    return unit @ unit.T
