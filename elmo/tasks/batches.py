"""Which examples sit together: like sizes, a little chance, all decided by seed and epoch so that a run can go on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def plan_epoch(sizes: Sequence[int], batch_size: int, *, seed: int, epoch: int, max_tokens: int = 0) -> list[list[int]]:
    """Every example once, in batches of like size, in random order. The same seed and epoch give the same plan.

    `max_tokens` bounds the padded size of a batch (its count times its largest); one example may be larger.
    """
    chance = np.random.default_rng((seed, epoch))
    jitter = chance.uniform(0.9, 1.1, len(sizes))  # neighbours change from epoch to epoch
    order = np.argsort((np.asarray(sizes) + chance.uniform(0, 1, len(sizes))) * jitter, kind="stable")
    batches = group(order.tolist(), sizes, batch_size, max_tokens)
    return [batches[i] for i in chance.permutation(len(batches))]


def group(order: Sequence[int], sizes: Sequence[int], batch_size: int, max_tokens: int = 0) -> list[list[int]]:
    """Cuts an order into batches."""
    batches: list[list[int]] = []
    widest = 0
    for number in order:
        widest = max(widest, sizes[number])
        full = not batches or len(batches[-1]) == batch_size
        if full or (max_tokens and widest * (len(batches[-1]) + 1) > max_tokens):
            batches.append([])
            widest = sizes[number]
        batches[-1].append(number)
    return batches
