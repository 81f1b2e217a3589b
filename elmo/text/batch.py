"""Sentences into batches: grouped by length under a token budget, padded, the caller's order remembered.

The last step before the network. `plan_batches` decides who sits with whom; `make_batch` pads one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.text.indexer import Indexer, sentence_rows


@dataclass(frozen=True)
class CharBatch:
    """Padded rows for the network: ids (B, T, W) with 0 = padding, mask (B, T) true at tokens and boundaries."""

    ids: np.ndarray
    mask: np.ndarray


def plan_batches(lengths: Sequence[int], *, max_tokens: int = 4096, max_rows: int = 512) -> list[np.ndarray]:
    """Groups of sentence numbers, longest first, each at most max_rows rows and max_tokens padded tokens.

    `lengths` count tokens without boundaries. A sentence longer than the budget gets a batch of its own. Empty
    sentences are in no batch. Equal lengths keep the caller's order, so the plan depends on the lengths alone.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batches: list[np.ndarray] = []
    start = 0
    while start < len(order) and lengths[order[start]] > 0:
        width = int(lengths[order[start]]) + 2
        rows = max(1, min(max_rows, max_tokens // width))
        group = order[start : start + rows]
        group = group[[lengths[i] > 0 for i in group]]
        batches.append(group)
        start += len(group)
    return batches


def windows_of(
    sentences: Iterable[Sequence[str]], max_tokens: int, num_rows: int | None = None
) -> Iterator[list[Sequence[str]]]:
    """Runs of consecutive sentences with at most max_tokens tokens together (one sentence may be longer).

    With `num_rows`, each run has exactly so many sentences, whatever their lengths, but for the last.
    """
    window: list[Sequence[str]] = []
    tokens = 0
    for sentence in sentences:
        full = len(window) == num_rows if num_rows else tokens + len(sentence) + 2 > max_tokens
        if window and full:
            yield window
            window, tokens = [], 0
        window.append(sentence)
        tokens += len(sentence) + 2
    if window:
        yield window


def make_batch(sentences: Sequence[Sequence[str]], indexer: Indexer) -> CharBatch:
    """All given sentences as one padded batch, boundary rows added."""
    longest = max((len(sentence) for sentence in sentences), default=0) + 2
    ids = np.zeros((len(sentences), longest, indexer.width), dtype=np.int32)  # (B, T, W)
    mask = np.zeros((len(sentences), longest), dtype=bool)  # (B, T)
    for number, sentence in enumerate(sentences):
        ids[number, : len(sentence) + 2] = sentence_rows(indexer, sentence)
        mask[number, : len(sentence) + 2] = True
    return CharBatch(ids=ids, mask=mask)
