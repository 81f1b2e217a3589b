"""Packing of sentences end to end into rows, for the CUDA kernels and for the slots of the CPU kernels.

The host assigns whole sentences, at millions of words per second. The GPU derives the position of each token from the
row and the first step of its sentence (`elmo.kernels.cuda.layout`). Both directions use the same positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

BUCKETS = (16, 64, 256, 512, 1024, 2048, 4096)  # numbers of rows; each one used needs its own CUDA graphs


@dataclass(frozen=True)
class Packing:
    """slots and starts (S,) int32: the row and the first step of each sentence, -1 for a sentence without tokens."""

    num_rows: int
    num_steps: int
    slots: np.ndarray
    starts: np.ndarray


def pack(lengths: np.ndarray, break_even: int) -> Packing:
    """Packs sentences of the given lengths (boundaries included; 0: not run) into the number of rows that is fastest.

    `break_even` is the fixed cost of a step, expressed as the number of rows that take the same time.
    """
    num_rows = choose_rows(lengths[lengths > 0], break_even)
    slots, starts = queue(lengths, num_rows)
    ends = np.where(slots >= 0, starts + lengths, 0)
    return Packing(num_rows=num_rows, num_steps=int(ends.max(initial=0)), slots=slots, starts=starts)


def queue(lengths: np.ndarray, num_slots: int) -> tuple[np.ndarray, np.ndarray]:
    """The slot and first step (S,) int32 of each sentence: longest first, to the slot with the fewest tokens.

    Both are -1 for a sentence without tokens.
    """
    filled = np.flatnonzero(lengths)
    order = filled[np.argsort(-lengths[filled], kind="stable")]
    loads = [(0, slot) for slot in range(num_slots)]  # a heap of (tokens, slot)
    slot_list, start_list = [], []
    for length in lengths[order].tolist():
        load, slot = loads[0]
        heapreplace(loads, (load + length, slot))
        slot_list.append(slot)
        start_list.append(load)
    slots, starts = (np.full(len(lengths), -1, dtype=np.int32) for _ in range(2))
    slots[order], starts[order] = slot_list, start_list
    return slots, starts


def choose_rows(lengths: np.ndarray, break_even: int) -> int:
    """The fastest bucket: more rows need fewer steps, but at least as many as the longest sentence has tokens."""
    longest, total = int(lengths.max(initial=1)), int(lengths.sum())
    return min(BUCKETS, key=lambda rows: (break_even + rows) * max(longest, -(-total // min(rows, len(lengths) or 1))))
