"""A vector source for tests: a rule computes the layers of each word from its sentence and position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np


class RuleVectors:
    """`rule(sentence, position)` returns the layers (L, D) of a word."""

    name = "rule"

    def __init__(self, rule: Callable[[Sequence[str], int], Any], num_layers: int, dim: int) -> None:
        self.rule, self.num_layers, self.dim = rule, num_layers, dim
        self.calls = 0

    def layers(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        self.calls += 1
        for sentence in sentences:
            words = [np.asarray(self.rule(sentence, position), dtype=np.float32) for position in range(len(sentence))]
            yield np.stack(words, axis=1) if words else np.zeros((self.num_layers, 0, self.dim), np.float32)

    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "layers": self.num_layers, "dim": self.dim}
