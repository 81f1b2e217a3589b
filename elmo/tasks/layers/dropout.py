"""Dropout that drops the same units at every time step of a row (variational, Gal and Ghahramani 2016)."""

from __future__ import annotations

from torch import Tensor, nn


class TimeDropout(nn.Module):
    """(B, T, D) with one mask (B, 1, D) a row."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, vectors: Tensor) -> Tensor:
        if not self.training or not self.share:
            return vectors
        kept = nn.functional.dropout(vectors.new_ones(len(vectors), 1, vectors.shape[-1]), self.share)
        return vectors * kept
