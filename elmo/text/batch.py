"""Groups sentences of similar length into batches under a token budget, and pads each batch.

This is the last step before the network. `plan_batches` groups sentence numbers by length, `windows_of` cuts a stream
into runs of consecutive sentences, and `make_batch` pads one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.text.indexer import Indexer, sentence_rows


@dataclass(frozen=True)
class CharBatch:
    """One padded batch: ids (B, T, W), where 0 is padding, and mask (B, T), true at tokens and boundaries."""

    ids: np.ndarray
    mask: np.ndarray


def plan_batches(lengths: Sequence[int], *, max_tokens: int = 4096, max_rows: int = 512) -> list[np.ndarray]:
    """Groups of sentence numbers, longest first, each with at most max_rows rows and max_tokens padded tokens.

    `lengths` count tokens without boundaries. A sentence longer than the budget gets its own batch. Empty sentences are
    in no batch. Sentences of equal length stay in the caller's order, so the plan depends only on the lengths.
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
    """Windows of consecutive sentences with at most max_tokens tokens in total; a longer sentence is a window alone.

    With `num_rows`, each window except the last has exactly num_rows sentences, and max_tokens is ignored. A string is
    a TypeError, because its letters would be read as tokens.
    """
    window: list[Sequence[str]] = []
    num_tokens = 0
    for number, sentence in enumerate([sentences] if isinstance(sentences, str) else sentences):
        if isinstance(sentence, str):
            raise TypeError(
                f"sentences[{number}] is the string {sentence[:40]!r}; expected a sentence, a list of tokens."
            )
        is_full = len(window) == num_rows if num_rows else num_tokens + len(sentence) + 2 > max_tokens
        if window and is_full:
            yield window
            window, num_tokens = [], 0
        window.append(sentence)
        num_tokens += len(sentence) + 2
    if window:
        yield window


def make_batch(sentences: Sequence[Sequence[str]], indexer: Indexer) -> CharBatch:
    """All sentences as one padded batch, with boundary rows added."""
    max_length = max((len(sentence) for sentence in sentences), default=0) + 2
    ids = np.zeros((len(sentences), max_length, indexer.width), dtype=np.int32)  # (B, T, W)
    mask = np.zeros((len(sentences), max_length), dtype=bool)  # (B, T)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence) + 2] = sentence_rows(indexer, sentence)
        mask[row, : len(sentence) + 2] = True
    return CharBatch(ids=ids, mask=mask)
