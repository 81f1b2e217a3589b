"""Who runs where in the CUDA twin: sentences end to end in slots, the same places for both directions.

Like `slots`, but for millions of words a second: the host decides for whole sentences only, and what a token needs to
know is worked out on the GPU from its sentence's slot and first step (`layout_cuda`).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

BUCKETS = (16, 64, 256, 512, 1024, 2048, 4096)  # rows that advance together; few numbers, so few recorded graphs


@dataclass(frozen=True)
class Packing:
    """slots and starts (S,) int32: each sentence's row and first step, -1 for one without tokens."""

    num_rows: int
    num_steps: int
    slots: np.ndarray
    starts: np.ndarray


def pack(lengths: np.ndarray, break_even: int) -> Packing:
    """Sentences of so many tokens each, boundaries included (0: nothing to run), in as many rows as pay.

    A step takes as long as `break_even` rows of it however few rows there are.
    """
    num_rows = choose_rows(lengths[lengths > 0], break_even)
    slots, starts = queue(lengths, num_rows)
    ends = np.where(slots >= 0, starts + lengths, 0)
    return Packing(num_rows=num_rows, num_steps=int(ends.max(initial=0)), slots=slots, starts=starts)


def queue(lengths: np.ndarray, num_slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Each sentence's slot and first step (S,) int32, the longest first to the emptiest slot; -1 without tokens."""
    filled = np.flatnonzero(lengths)
    order = filled[np.argsort(-lengths[filled], kind="stable")]
    loads = [(0, slot) for slot in range(num_slots)]  # how full, and which; the emptiest first
    rows, begins = [], []
    for length in lengths[order].tolist():
        load, slot = loads[0]
        heapreplace(loads, (load + length, slot))
        rows.append(slot)
        begins.append(load)
    slots, starts = (np.full(len(lengths), -1, dtype=np.int32) for _ in range(2))
    slots[order], starts[order] = rows, begins
    return slots, starts


def choose_rows(lengths: np.ndarray, break_even: int) -> int:
    """The bucket that is done first: more rows take fewer steps, but never fewer than the longest sentence has."""
    longest, total = int(lengths.max(initial=1)), int(lengths.sum())
    return min(BUCKETS, key=lambda rows: (break_even + rows) * max(longest, -(-total // min(rows, len(lengths) or 1))))
