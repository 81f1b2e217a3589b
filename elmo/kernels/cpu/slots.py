"""Plan of the PyTorch implementation: sentences queued in slots, so that every row of a step is a real token.

The compiled kernels make the same plan in C++ (slots.h).
"""

from __future__ import annotations

import numpy as np

from elmo.kernels.packing import queue


def by_step(marks: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """step -> (slots, sentences), for all entries of `marks` (steps, slots) that hold a sentence and not -1."""
    steps, slots = np.nonzero(marks >= 0)
    parts = np.split(np.arange(len(steps)), np.flatnonzero(np.diff(steps)) + 1) if len(steps) else []
    return {int(steps[part[0]]): (slots[part], marks[steps[part], slots[part]]) for part in parts}


def plan_slots(
    offsets: np.ndarray, num_slots: int, *, reverse: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Queues sentences end to end: the longest sentence goes first, always to the slot with the fewest tokens.

    Returns, each (steps, slots): the token that is read or -1, the sentence that begins or -1, the sentence that ends
    or -1; and (steps,) the number of active slots. Slots are sorted by load, so the active slots are the first ones.
    """
    lengths = np.diff(offsets)
    queues, starts = queue(lengths, max(1, min(num_slots, int(np.count_nonzero(lengths)))))
    ends_at = starts + lengths
    loads = np.zeros(queues.max(initial=-1) + 1, dtype=np.int64)
    np.maximum.at(loads, queues[queues >= 0], ends_at[queues >= 0])
    ranks = np.argsort(np.argsort(-loads, kind="stable"), kind="stable")  # the slot of each queue: most tokens first
    steps = int(loads.max(initial=0))
    visits, begins, ends = (np.full((steps, len(loads)), -1, dtype=np.int64) for _ in range(3))
    for sentence in np.flatnonzero(queues >= 0):
        slot, start, end = ranks[queues[sentence]], starts[sentence], ends_at[sentence]
        tokens = np.arange(offsets[sentence], offsets[sentence + 1])
        visits[start:end, slot] = tokens[::-1] if reverse else tokens
        begins[start, slot] = ends[end - 1, slot] = sentence
    return visits, begins, ends, (visits >= 0).sum(axis=1)
