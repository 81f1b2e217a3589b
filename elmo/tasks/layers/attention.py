"""Softmax, means and attention that padding cannot touch. Scores of masked places are minus infinity, results zero."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Softmax over the places where the mask (broadcast to scores) is true; all zero where there is none."""
    shares = torch.softmax(scores.float().masked_fill(~mask, torch.finfo(torch.float32).min), dim=dim)
    return (shares * mask).to(scores.dtype)


def masked_log_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Log of the softmax over the places in the mask; a very negative finite number outside it."""
    return torch.log_softmax(scores.float().masked_fill(~mask, -1e30), dim=dim)


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B, D), zero for an empty row."""
    inside = mask[:, :, None].to(vectors.dtype)
    return (vectors * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)


def masked_max(vectors: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B, D), zero for an empty row."""
    best = vectors.masked_fill(~mask[:, :, None], torch.finfo(vectors.dtype).min).amax(dim=1)
    return best * mask.any(dim=1, keepdim=True)


def masked_min(vectors: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B, D), zero for an empty row."""
    return -masked_max(-vectors, mask)


def attend(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """For each row of scores (B, S, T) the mean of values (B, T, D) it asks for, mask (B, T): (B, S, D)."""
    return masked_softmax(scores, mask[:, None]) @ values


def bi_attention(a: Tensor, b: Tensor, a_mask: Tensor, b_mask: Tensor) -> tuple[Tensor, Tensor]:
    """What each place of a (B, S, D) sees of b (B, T, D), and of b sees of a, by dot products: (B, S, D), (B, T, D)."""
    scores = a @ b.transpose(1, 2)  # (B, S, T)
    return attend(scores, b, b_mask), attend(scores.transpose(1, 2), a, a_mask)
