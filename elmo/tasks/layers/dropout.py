"""Variational dropout (Gal and Ghahramani 2016): drops the same units at every time step of a row."""

from __future__ import annotations

from torch import Tensor, nn


class TimeDropout(nn.Module):
    """Dropout on (B, T, D) with one mask (1, D) per row."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, vectors: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return vectors
        mask = nn.functional.dropout(vectors.new_ones(len(vectors), 1, vectors.shape[-1]), self.rate)  # (B, 1, D)
        return vectors * mask
