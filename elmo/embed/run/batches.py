"""Shared by the executors: how sentences are grouped, and how vectors are converted to numpy and pooled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elmo.embed.layer_choice import LayerChoice
from elmo.embed.pool import pool
from elmo.text.batch import plan_batches, windows_of

BATCHES_PER_WINDOW = 4  # enough sentences to group them by length, few enough to stream


@dataclass(frozen=True)
class BatchOptions:
    """How the sentences of a call are batched."""

    policy: str  # of the state: reset, warm, carry
    batch_size: int  # most sentences per batch
    max_tokens: int  # most tokens per batch, padding included


def sentence_windows(sentences: Iterable[Sequence[str]], options: BatchOptions) -> Iterator[list[Sequence[str]]]:
    """Consecutive sentences that are run together, a few batches at a time; with state "carry", one batch at a time."""
    num_rows = options.batch_size if options.policy == "carry" else None
    return windows_of(sentences, BATCHES_PER_WINDOW * options.max_tokens, num_rows)


def plan_groups(sentences: Sequence[Sequence[str]], options: BatchOptions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batch by batch: the numbers of its sentences that have tokens, and their rows in the batch.

    With state "carry" a batch holds consecutive sentences, otherwise sentences of similar length. The rows matter with
    "carry" only.
    """
    rows = options.batch_size
    if options.policy == "carry":
        groups = [np.arange(a, min(a + rows, len(sentences))) for a in range(0, len(sentences), rows)]
    else:
        groups = plan_batches([len(s) for s in sentences], max_tokens=options.max_tokens, max_rows=rows)
    for group in groups:
        filled = group[[len(sentences[int(i)]) > 0 for i in group]]
        if len(filled):
            yield filled, filled - group[0]


def pool_sentences(
    vectors: Iterable[Tensor], layer_choice: LayerChoice, pooling: str
) -> Iterator[tuple[np.ndarray, int]]:
    """One pooled vector (1, D), or (1, K, D) for a stacked choice, per sentence, and the number of its tokens."""
    for layers in vectors:  # (K, n, D)
        chosen = to_numpy(layer_choice.unstack(layers))
        yield pool(chosen, pooling)[None], chosen.shape[-2]


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The tensor as numpy; bfloat16, which numpy does not have, becomes float32, which represents it exactly."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
