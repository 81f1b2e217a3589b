"""Converts tokenised sentences to tensors: word ids, character ids, ELMo layers. Every task's `collate` uses it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from elmo.tasks.layer_cache import LayerSource
from elmo.tasks.layers.packing import Packing, make_packing
from elmo.tasks.task import Labels
from elmo.tasks.word_vocabulary import WordVocabulary, encode_chars
from elmo.text.batch import make_batch
from elmo.text.indexer import Indexer

Value = TypeVar("Value")


@dataclass(frozen=True)
class TokenBatch:
    """B sentences padded on the right to T tokens, without boundaries.

    word_ids (B, T), 0 = padding · mask (B, T), true at tokens · char_ids (U, C) of the distinct words, for the
    character CNN, its row 0 is padding, or None · char_rows (B, T), the row of each token in char_ids, or None ·
    layers (L+1, B, T, D) float16 of a frozen biLM, or None · bilm_char_ids (B, T+2, C) with boundaries, the input of a
    tuned biLM, or None · packing of the mask, for recurrent layers, or None.
    """

    word_ids: Tensor
    mask: Tensor
    char_ids: Tensor | None = None
    char_rows: Tensor | None = None
    layers: Tensor | None = None
    bilm_char_ids: Tensor | None = None
    packing: Packing | None = None


class BatchMaker:
    """Converts tokens and labels to tensors according to the settings of a run. Every `task.collate` gets it."""

    def __init__(
        self,
        vocabulary: WordVocabulary,
        labels: Labels,
        *,
        max_chars: int = 0,  # bytes per word for the character CNN; 0: no characters
        source: LayerSource | None = None,  # layers of a frozen biLM
        indexer: Indexer | None = None,  # of a tuned biLM
    ) -> None:
        self.vocabulary, self.labels = vocabulary, labels
        self._max_chars, self.source, self._indexer = max_chars, source, indexer
        self._label_ids = {name: {label: n for n, label in enumerate(label_set)} for name, label_set in labels.items()}
        self._token_ids = TokenIds(vocabulary, max_chars)

    def label_id(self, label_set: str, label: str) -> int:
        """The id of a label in a label set; -1 for a label that the training data does not have."""
        return self._label_ids[label_set].get(label, -1)

    def tokens(self, sentences: Sequence[Sequence[str]]) -> TokenBatch:
        """One padded batch with one row per sentence, in order."""
        return self._batch(sentences, [[sentence] for sentence in sentences])

    def joined(self, texts: Sequence[Sequence[Sequence[str]]]) -> TokenBatch:
        """One padded batch with one row per text; a frozen biLM embeds the sentences of a text one by one."""
        return self._batch([list(chain.from_iterable(text)) for text in texts], texts)

    def _batch(self, rows: Sequence[Sequence[str]], texts: Sequence[Sequence[Sequence[str]]]) -> TokenBatch:
        """`rows` are the tokens of each row, `texts` the same tokens in sentences."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)  # (B,)
        T = max(1, int(lengths.max(initial=0)))
        mask = np.arange(T) < lengths[:, None]  # (B, T)
        indices = self._token_ids.indices(list(chain.from_iterable(rows)))  # (N,)
        word_ids = np.zeros(mask.shape, dtype=np.int64)  # (B, T)
        word_ids[mask] = self._token_ids.word_ids[indices]
        char_ids = char_rows = None
        if self._max_chars:
            distinct, rows_of_tokens = _distinct(indices)  # (U - 1,), (N,)
            C = max(1, int(self._token_ids.lengths[distinct].max(initial=1)))
            char_ids = np.zeros((1 + len(distinct), C), dtype=np.int64)  # (U, C)
            char_ids[1:] = self._token_ids.char_ids[distinct, :C]
            char_rows = np.zeros(mask.shape, dtype=np.int64)  # (B, T)
            char_rows[mask] = 1 + rows_of_tokens
        bilm_char_ids = None
        if self._indexer is not None:
            bilm_char_ids = torch.from_numpy(make_batch(rows, self._indexer).ids)  # (B, T+2, C)
        return TokenBatch(
            word_ids=torch.from_numpy(word_ids),
            mask=torch.from_numpy(mask),
            char_ids=None if char_ids is None else torch.from_numpy(char_ids),
            char_rows=None if char_rows is None else torch.from_numpy(char_rows),
            layers=None if self.source is None else self.source.joined(texts, T),
            bilm_char_ids=bilm_char_ids,
            packing=make_packing(lengths, T),
        )


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values in the order of their first occurrence, and the index of each value among them.

    This order depends on the batch alone; the values are numbers of a cache, which differ between processes.
    """
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return distinct[order], np.argsort(order)[inverse]


class TokenIds:
    """Cache of the word id, the character ids and their number for every token so far: arrays with one row per token.

    One thread prepares training batches while another one may prepare batches for a validation, so a lock protects the
    addition of tokens.
    """

    def __init__(self, vocabulary: WordVocabulary, max_chars: int) -> None:
        self._vocabulary, self._max_chars = vocabulary, max_chars
        self._index_of: dict[str, int] = {}
        self._lock = threading.Lock()
        self.word_ids = np.zeros(1024, dtype=np.int64)  # (capacity,)
        self.lengths = np.zeros(1024, dtype=np.int64)  # (capacity,)
        self.char_ids = np.zeros((1024, max_chars + 2 if max_chars else 0), dtype=np.int16)  # (capacity, C)

    def indices(self, tokens: Sequence[str]) -> np.ndarray:
        """The rows of the tokens in the arrays, (N,); adds new tokens."""
        with self._lock:
            for token in set(tokens).difference(self._index_of):
                self._add(token)
            return np.array([self._index_of[token] for token in tokens], dtype=np.int64)

    def _add(self, token: str) -> None:
        index = len(self._index_of)
        if index == len(self.word_ids):
            self.word_ids, self.lengths, self.char_ids = (
                np.concatenate([array, np.zeros_like(array)]) for array in (self.word_ids, self.lengths, self.char_ids)
            )
        self.word_ids[index] = self._vocabulary.id(token)
        if self._max_chars:
            ids = encode_chars(token, self._max_chars)
            self.char_ids[index, : len(ids)] = ids
            self.lengths[index] = len(ids)
        self._index_of[token] = index


def to_device(value: Value, device: torch.device) -> Value:
    """The same dataclass, tuple or list with all its tensors on the device."""
    moved: Any = value
    if isinstance(value, Tensor):
        # a copy from pinned memory does not wait for the work on the device
        source = value.pin_memory() if device.type == "cuda" and value.device.type == "cpu" else value
        moved = source.to(device, non_blocking=True)
    elif is_dataclass(value) and not isinstance(value, type):
        moved = replace(value, **{f.name: to_device(getattr(value, f.name), device) for f in fields(value)})
    elif type(value) in (tuple, list):
        moved = type(value)(to_device(item, device) for item in value)  # type: ignore[attr-defined,call-arg]  # narrowed above
    return cast("Value", moved)
