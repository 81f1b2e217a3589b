"""Softmax, pooling and attention with masks, so that padding has no influence; results for empty rows are zero."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Softmax over the positions where the mask (broadcast to scores) is true; all zero if it is nowhere true."""
    weights = torch.softmax(scores.float().masked_fill(~mask, torch.finfo(torch.float32).min), dim=dim)
    return (weights * mask).to(scores.dtype)


def masked_log_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Log of the softmax over the positions in the mask; a very negative finite number outside the mask."""
    return torch.log_softmax(scores.float().masked_fill(~mask, -1e30), dim=dim)


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B, D), zero for an empty row."""
    factors = mask[:, :, None].to(vectors.dtype)  # (B, T, 1)
    return (vectors * factors).sum(dim=1) / factors.sum(dim=1).clamp(min=1)


def masked_max(vectors: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B, D), zero for an empty row."""
    largest = vectors.masked_fill(~mask[:, :, None], torch.finfo(vectors.dtype).min).amax(dim=1)  # (B, D)
    return largest * mask.any(dim=1, keepdim=True)


def masked_min(vectors: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B, D), zero for an empty row."""
    return -masked_max(-vectors, mask)


def attend(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Means of values (B, T, D) weighted by the softmax of scores (B, S, T), with mask (B, T): (B, S, D)."""
    return masked_softmax(scores, mask[:, None]) @ values


def bi_attention(a: Tensor, b: Tensor, a_mask: Tensor, b_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Dot-product attention of a (B, S, D) to b (B, T, D), and of b to a: (B, S, D), (B, T, D)."""
    scores = a @ b.transpose(1, 2)  # (B, S, T)
    return attend(scores, b, b_mask), attend(scores.transpose(1, 2), a, a_mask)
