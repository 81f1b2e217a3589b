"""Sentences of tokens as tensors: word numbers, characters, ELMo layers. What every task's `collate` builds on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from elmo.tasks.layer_cache import LayerSource
from elmo.tasks.layers.packing import Packing, make_packing
from elmo.tasks.task import Labels
from elmo.tasks.word_vocabulary import Symbols, char_ids
from elmo.text.batch import make_batch
from elmo.text.indexer import Indexer

Value = TypeVar("Value")


@dataclass(frozen=True)
class TokenBatch:
    """B sentences padded on the right to T tokens, without boundaries.

    words (B, T), 0 = padding · chars (B, T, W) or None · mask (B, T), true at tokens · layers (L+1, B, T, D) float16,
    of a frozen biLM, or None · rows (B, T+2, W) with boundaries, what a tuned biLM reads, or None · packing, for
    recurrent layers: the mask's.
    """

    words: Tensor
    mask: Tensor
    chars: Tensor | None = None
    layers: Tensor | None = None
    rows: Tensor | None = None
    packing: Packing | None = None


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
        self._seen = SeenTokens(symbols, max_chars)

    def number(self, kind: str, label: str) -> int:
        """A label's number in the set `kind`; -1 for one that training never saw."""
        return self._numbers[kind].get(label, -1)

    def tokens(self, sentences: Sequence[Sequence[str]]) -> TokenBatch:
        """One padded batch of the sentences, in their order."""
        return self._batch(sentences, [[sentence] for sentence in sentences])

    def joined(self, rows: Sequence[Sequence[Sequence[str]]]) -> TokenBatch:
        """One padded batch with a row for each list of sentences, which a frozen biLM reads one by one."""
        return self._batch([list(chain.from_iterable(row)) for row in rows], rows)

    def _batch(self, whole: Sequence[Sequence[str]], rows: Sequence[Sequence[Sequence[str]]]) -> TokenBatch:
        lengths = np.array([len(row) for row in whole], dtype=np.int64)  # (B,)
        T = max(1, int(lengths.max(initial=0)))
        mask = np.arange(T) < lengths[:, None]  # (B, T)
        numbers = self._seen.numbers(list(chain.from_iterable(whole)))  # (N,)
        words = np.zeros(mask.shape, dtype=np.int64)  # (B, T)
        words[mask] = self._seen.words[numbers]
        chars = None
        if self._max_chars:
            widest = max(1, int(self._seen.lengths[numbers].max(initial=1)))
            chars = np.zeros((*mask.shape, widest), dtype=np.int64)  # (B, T, W)
            chars[mask] = self._seen.chars[numbers, :widest]
        ids = None if self._indexer is None else torch.from_numpy(make_batch(whole, self._indexer).ids)  # (B, T+2, W)
        return TokenBatch(
            words=torch.from_numpy(words),
            mask=torch.from_numpy(mask),
            chars=None if chars is None else torch.from_numpy(chars),
            layers=None if self.source is None else self.source.joined(rows, T),
            rows=ids,
            packing=make_packing(lengths, T),
        )


class SeenTokens:
    """Every token met so far, by number: its word's number, its characters and how many they are, as arrays.

    Batches are made ahead in a thread while others are made for a validation, so new tokens are added one at a time.
    """

    def __init__(self, symbols: Symbols, max_chars: int) -> None:
        self._symbols, self._max_chars = symbols, max_chars
        self._known: dict[str, int] = {}
        self._lock = threading.Lock()
        self.words = np.zeros(1024, dtype=np.int64)  # (capacity,)
        self.lengths = np.zeros(1024, dtype=np.int64)  # (capacity,)
        self.chars = np.zeros((1024, max_chars + 2 if max_chars else 0), dtype=np.int16)  # (capacity, W)

    def numbers(self, tokens: Sequence[str]) -> np.ndarray:
        """(N,), of tokens old and new."""
        with self._lock:
            for token in set(tokens).difference(self._known):
                self._add(token)
            return np.array([self._known[token] for token in tokens], dtype=np.int64)

    def _add(self, token: str) -> None:
        number = len(self._known)
        if number == len(self.words):
            self.words, self.lengths, self.chars = (
                np.concatenate([old, np.zeros_like(old)]) for old in (self.words, self.lengths, self.chars)
            )
        self.words[number] = self._symbols.id(token)
        if self._max_chars:
            ids = char_ids(token, self._max_chars)
            self.chars[number, : len(ids)] = ids
            self.lengths[number] = len(ids)
        self._known[token] = number


def to_device(value: Value, device: torch.device) -> Value:
    """The same dataclass, tuple or list with all its tensors on the device."""
    moved: Any = value
    if isinstance(value, Tensor):
        # a copy from pinned memory does not wait for what the device is at
        held = value.pin_memory() if device.type == "cuda" and value.device.type == "cpu" else value
        moved = held.to(device, non_blocking=True)
    elif is_dataclass(value) and not isinstance(value, type):
        moved = replace(value, **{f.name: to_device(getattr(value, f.name), device) for f in fields(value)})
    elif type(value) in (tuple, list):
        moved = type(value)(to_device(item, device) for item in value)  # type: ignore[attr-defined,call-arg]  # narrowed above
    return moved
