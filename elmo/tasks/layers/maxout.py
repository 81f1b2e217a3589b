"""A maxout layer (Goodfellow et al. 2013) with normalisation before it, as the classification network has it.

The published network normalises over the batch. Batches here hold sentences of like length, and their statistics differ
so much that running ones fit none: each vector is normalised alone instead, and depends on no neighbour.
"""

from __future__ import annotations

from torch import Tensor, nn


class Maxout(nn.Module):
    """(B, input_dim) to (B, output_dim): normalised, dropped out, the largest of `num_pieces` linear maps."""

    def __init__(self, input_dim: int, output_dim: int, num_pieces: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_dim, self.num_pieces = output_dim, num_pieces
        self.norm = nn.LayerNorm(input_dim)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(input_dim, output_dim * num_pieces)

    def forward(self, x: Tensor) -> Tensor:
        pieces = self.project(self.dropout(self.norm(x)))  # (B, output_dim * num_pieces)
        return pieces.unflatten(-1, (self.output_dim, self.num_pieces)).amax(dim=-1)  # (B, output_dim)
