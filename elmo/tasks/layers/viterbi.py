"""Viterbi decoding: the best label sequence under rules for neighbouring labels. For CRFs and BIO taggers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

FORBIDDEN = -1e4  # score of what is not allowed: far below any other score, and sums of it are still finite


def viterbi(
    scores: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> tuple[list[list[int]], Tensor]:
    """The best labels of each row, and their total score (B,).

    scores (B, T, K), mask (B, T) with padding on the right, transitions (K, K) from row to column, start and end (K,).
    """
    scores, transitions = scores.float(), transitions.float()
    T = scores.shape[1]
    best = start + scores[:, 0]  # (B, K)
    back_pointers = []
    for t in range(1, T):
        paths = best[:, :, None] + transitions + scores[:, t, None]  # (B, K, K)
        top, back = paths.max(dim=1)  # (B, K)
        best = torch.where(mask[:, t, None], top, best)
        back_pointers.append(back)
    total, last = (best + end).max(dim=1)  # (B,)
    lengths = mask.sum(dim=1).cpu().numpy()  # (B,)
    pointers = torch.stack(back_pointers).cpu().numpy() if back_pointers else ()  # (T-1, B, K)
    path = np.empty((T, len(scores)), dtype=np.int64)  # (T, B), filled from the end
    path[T - 1] = last.cpu().numpy()
    for t in range(T - 1, 0, -1):
        previous = np.take_along_axis(pointers[t - 1], path[t][:, None], axis=1)[:, 0]
        path[t - 1] = np.where(t < lengths, previous, path[t])
    rows = [row[:length] for row, length in zip(path.T.tolist(), lengths.tolist(), strict=True)]
    return rows, total


def bio_rules(labels: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """The rules of IOB2: which of K labels may follow each other (K, K), from row to column, start (K,) and end (K,).

    I-X may only follow B-X or I-X, and may not be first. All tensors are bool.
    """
    allowed = torch.tensor([[_may_follow(previous, label) for label in labels] for previous in labels])  # (K, K)
    start = torch.tensor([not label.startswith("I-") for label in labels])  # (K,)
    return allowed, start, torch.ones(len(labels), dtype=torch.bool)


def as_scores(allowed: Tensor) -> Tensor:
    """0 where allowed, FORBIDDEN elsewhere."""
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, FORBIDDEN)


def _may_follow(previous: str, label: str) -> bool:
    return not label.startswith("I-") or previous in (f"B-{label[2:]}", label)
