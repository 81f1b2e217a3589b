"""A source of vectors for tests: every layer of a word is looked up by the word, its neighbour, or a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np


class MadeVectors:
    """`rule(sentence, place)` gives a word's layers (L, D)."""

    name = "made"

    def __init__(self, rule: Callable[[Sequence[str], int], Any], num_layers: int, dim: int) -> None:
        self.rule, self.num_layers, self.dim = rule, num_layers, dim
        self.calls = 0

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        self.calls += 1
        for sentence in sentences:
            rows = [np.asarray(self.rule(sentence, place), dtype=np.float32) for place in range(len(sentence))]
            yield np.stack(rows, axis=1) if rows else np.zeros((self.num_layers, 0, self.dim), np.float32)

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "layers": self.num_layers, "dim": self.dim}
