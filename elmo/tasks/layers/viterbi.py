"""The best path through a row of scores, under rules of which label may follow which. For CRFs and BIO taggers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

FORBIDDEN = -1e4  # added to what may not be: far below any score, and finite so that sums stay so


def viterbi(
    scores: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> tuple[list[list[int]], Tensor]:
    """Best labels of each row and their total score (B,).

    scores (B, T, K), mask (B, T) with padding on the right, transitions (K, K) from row to column, start and end (K,).
    """
    scores, transitions = scores.float(), transitions.float()
    T = scores.shape[1]
    best = start + scores[:, 0]  # (B, K)
    came_from = []
    for t in range(1, T):
        paths = best[:, :, None] + transitions + scores[:, t, None]  # (B, K, K)
        top, back = paths.max(dim=1)  # (B, K)
        best = torch.where(mask[:, t, None], top, best)
        came_from.append(back)
    total, last = (best + end).max(dim=1)  # (B,)
    lengths = mask.sum(dim=1).cpu().numpy()  # (B,)
    backs = torch.stack(came_from).cpu().numpy() if came_from else ()  # (T-1, B, K)
    path = np.empty((T, len(scores)), dtype=np.int64)  # (T, B), each row read from its end
    path[T - 1] = last.cpu().numpy()
    for t in range(T - 1, 0, -1):
        before = np.take_along_axis(backs[t - 1], path[t][:, None], axis=1)[:, 0]
        path[t - 1] = np.where(t < lengths, before, path[t])
    rows = [row[:length] for row, length in zip(path.T.tolist(), lengths.tolist(), strict=True)]
    return rows, total


def bio_rules(labels: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """What may be in IOB2: allowed (K, K) from row to column, at the start (K,), at the end (K,); all bool.

    I-X follows B-X or I-X alone, and begins nothing.
    """
    allowed = torch.tensor([[_may_follow(before, after) for after in labels] for before in labels])  # (K, K)
    start = torch.tensor([not label.startswith("I-") for label in labels])  # (K,)
    return allowed, start, torch.ones(len(labels), dtype=torch.bool)


def as_scores(allowed: Tensor) -> Tensor:
    """0 where allowed, FORBIDDEN elsewhere."""
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, FORBIDDEN)


def _may_follow(before: str, after: str) -> bool:
    return not after.startswith("I-") or before in (f"B-{after[2:]}", after)
