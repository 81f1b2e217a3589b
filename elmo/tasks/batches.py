"""Assigns examples to batches of similar size; seed and epoch determine the random order, so a run can be resumed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def plan_epoch(sizes: Sequence[int], batch_size: int, *, seed: int, epoch: int, max_tokens: int = 0) -> list[list[int]]:
    """The batches of one epoch, as indices of examples: every example once, similar sizes together, in random order.

    The same seed and epoch give the same plan. `max_tokens` limits the padded size of a batch (number of examples times
    largest size); an example larger than the limit is a batch of its own.
    """
    rng = np.random.default_rng((seed, epoch))
    jitter = rng.uniform(0.9, 1.1, len(sizes))  # changes the neighbours from epoch to epoch
    order = np.argsort((np.asarray(sizes) + rng.uniform(0, 1, len(sizes))) * jitter, kind="stable")
    batches = split_into_batches(order.tolist(), sizes, batch_size, max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def split_into_batches(
    order: Sequence[int], sizes: Sequence[int], batch_size: int, max_tokens: int = 0
) -> list[list[int]]:
    """Splits a sequence of indices into consecutive batches within the limits."""
    batches: list[list[int]] = []
    largest = 0
    for index in order:
        largest = max(largest, sizes[index])
        is_full = not batches or len(batches[-1]) == batch_size
        if is_full or (max_tokens and largest * (len(batches[-1]) + 1) > max_tokens):
            batches.append([])
            largest = sizes[index]
        batches[-1].append(index)
    return batches
