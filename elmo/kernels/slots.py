"""Who runs where in the PyTorch twin: sentences queued end to end in slots, so that a step's rows are all real tokens.

The compiled twin plans the same way by itself (cpu/lstm.h).
"""

from __future__ import annotations

import numpy as np


def by_step(marks: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """step -> slots and sentences, where (steps, slots) marks a sentence."""
    steps, slots = np.nonzero(marks >= 0)
    parts = np.split(np.arange(len(steps)), np.flatnonzero(np.diff(steps)) + 1) if len(steps) else []
    return {int(steps[part[0]]): (slots[part], marks[steps[part], slots[part]]) for part in parts}


def plan_slots(
    offsets: np.ndarray, num_slots: int, *, reverse: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sentences queued end to end in slots, the longest first to the emptiest slot, fullest slot first.

    Gives, each (steps, slots): the token visited or -1, the sentence that begins there or -1, the one that ends or -1;
    and (steps,) how many slots are still at work, which are the first ones.
    """
    lengths = np.diff(offsets)
    order = [s for s in np.argsort(-lengths, kind="stable") if lengths[s]]
    queues: list[list[int]] = [[] for _ in range(min(num_slots, len(order)))]
    loads = np.zeros(len(queues), dtype=np.int64)
    for sentence in order:
        least = int(loads.argmin())
        queues[least].append(sentence)
        loads[least] += lengths[sentence]
    ranks = np.argsort(-loads, kind="stable")
    steps = int(loads.max(initial=0))
    visits, begins, ends = (np.full((steps, len(queues)), -1, dtype=np.int64) for _ in range(3))
    for slot, queue in enumerate(ranks):
        t = 0
        for sentence in queues[queue]:
            tokens = np.arange(offsets[sentence], offsets[sentence + 1])
            visits[t : t + len(tokens), slot] = tokens[::-1] if reverse else tokens
            begins[t, slot] = ends[t + len(tokens) - 1, slot] = sentence
            t += len(tokens)
    return visits, begins, ends, (visits >= 0).sum(axis=1)
