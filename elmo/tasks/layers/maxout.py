"""Maxout layer (Goodfellow et al. 2013) with normalisation, as in the biattentive classification network.

The published network uses batch normalisation. Here a batch contains sentences of similar length, and the statistics of
batches differ so much that running statistics fit none of them. So layer normalisation is used, which does not depend
on the other examples of a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Maxout(nn.Module):
    """(B, input_dim) to (B, output_dim): normalisation, dropout, then the maximum of `num_pieces` linear maps."""

    def __init__(self, input_dim: int, output_dim: int, num_pieces: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim, self.num_pieces = output_dim, num_pieces
        self.norm = nn.LayerNorm(input_dim)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(input_dim, output_dim * num_pieces)

    def forward(self, x: Tensor) -> Tensor:
        pieces = self.project(self.dropout(self.norm(x)))  # (B, output_dim * num_pieces)
        stacked: Tensor = torch.unflatten(pieces, -1, (self.output_dim, self.num_pieces))  # (B, output_dim, num_pieces)
        return stacked.amax(dim=-1)  # (B, output_dim)
