"""Sentences of tokens as tensors: word numbers, characters, ELMo layers. What every task's `collate` builds on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from elmo.tasks.layer_cache import LayerSource
from elmo.tasks.symbols import Symbols, char_ids
from elmo.tasks.task import Labels
from elmo.text.batch import make_batch
from elmo.text.indexer import Indexer

Value = TypeVar("Value")


@dataclass(frozen=True)
class TokenBatch:
    """B sentences padded on the right to T tokens, without boundaries.

    words (B, T), 0 = padding · chars (B, T, W) or None · mask (B, T), true at tokens · layers (L+1, B, T, D) float16,
    of a frozen biLM, or None · rows (B, T+2, W) with boundaries, what a tuned biLM reads, or None.
    """

    words: Tensor
    mask: Tensor
    chars: Tensor | None = None
    layers: Tensor | None = None
    rows: Tensor | None = None


class BatchMaker:
    """Turns token lists and labels into tensors, as one run's settings ask for. Given to every `task.collate`."""

    def __init__(
        self,
        symbols: Symbols,
        labels: Labels,
        *,
        max_chars: int = 0,  # 0: no characters
        source: LayerSource | None = None,  # of frozen layers
        indexer: Indexer | None = None,  # of a tuned biLM
    ) -> None:
        self.symbols, self.labels = symbols, labels
        self._max_chars, self.source, self._indexer = max_chars, source, indexer
        self._numbers = {name: {label: n for n, label in enumerate(known)} for name, known in labels.items()}
        self._chars: dict[str, list[int]] = {}

    def number(self, kind: str, label: str) -> int:
        """A label's number in the set `kind`; -1 for one that training never saw."""
        return self._numbers[kind].get(label, -1)

    def tokens(self, sentences: Sequence[Sequence[str]]) -> TokenBatch:
        """One padded batch of the sentences, in their order."""
        B, T = len(sentences), max([1, *map(len, sentences)])
        words = np.zeros((B, T), dtype=np.int64)  # (B, T)
        mask = np.zeros((B, T), dtype=bool)  # (B, T)
        for row, sentence in enumerate(sentences):
            words[row, : len(sentence)] = [self.symbols.id(token) for token in sentence]
            mask[row, : len(sentence)] = True
        rows = None
        if self._indexer is not None:
            rows = torch.from_numpy(make_batch(sentences, self._indexer).ids)  # (B, T+2, W)
        return TokenBatch(
            words=torch.from_numpy(words),
            mask=torch.from_numpy(mask),
            chars=self._char_tensor(sentences, T) if self._max_chars else None,
            layers=None if self.source is None else self.source.layers(sentences, T),
            rows=rows,
        )

    def _char_tensor(self, sentences: Sequence[Sequence[str]], T: int) -> Tensor:
        spelled = [[self._spell(token) for token in sentence] for sentence in sentences]
        widest = max((len(ids) for sentence in spelled for ids in sentence), default=1)
        chars = np.zeros((len(sentences), T, widest), dtype=np.int64)  # (B, T, W)
        for row, sentence in enumerate(spelled):
            for column, ids in enumerate(sentence):
                chars[row, column, : len(ids)] = ids
        return torch.from_numpy(chars)

    def _spell(self, token: str) -> list[int]:
        if token not in self._chars:
            self._chars[token] = char_ids(token, self._max_chars)
        return self._chars[token]


def to_device(value: Value, device: torch.device) -> Value:
    """The same dataclass, tuple or list with all its tensors on the device."""
    moved: Any = value
    if isinstance(value, Tensor):
        moved = value.to(device, non_blocking=True)
    elif is_dataclass(value) and not isinstance(value, type):
        moved = replace(value, **{f.name: to_device(getattr(value, f.name), device) for f in fields(value)})
    elif type(value) in (tuple, list):
        moved = type(value)(to_device(item, device) for item in value)  # type: ignore[attr-defined,call-arg]  # narrowed above
    return moved
