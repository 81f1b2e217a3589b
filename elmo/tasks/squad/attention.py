"""The attention layers of the squad model: between passage and question (Seo et al. 2017), and self-attention.

The score of a pair of positions is trilinear with learned weights: w1 h_i + w2 q_j + w3 (h_i * q_j).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.layers.attention import masked_softmax


class PairScores(nn.Module):
    """Scores of every position of h (B, S, D) with every position of q (B, T, D): (B, S, T)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(dim, 1, bias=False), nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.empty(dim))
        nn.init.uniform_(self.both, -(dim**-0.5), dim**-0.5)

    def forward(self, h: Tensor, q: Tensor) -> Tensor:
        products = (h * self.both) @ q.transpose(1, 2)  # (B, S, T)
        scores: Tensor = products + self.left(h) + self.right(q).transpose(1, 2)  # (B, S, T)
        return scores


class BiAttention(nn.Module):
    """Passage h (B, S, D) and question q (B, T, D) to [h; c; h * c; c * a], (B, S, 4D).

    c is the attention of each passage position to the question, a the attention of the question to the passage.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = PairScores(dim)

    def forward(self, h: Tensor, q: Tensor, h_mask: Tensor, q_mask: Tensor) -> Tensor:
        scores = self.scores(h, q)  # (B, S, T)
        to_question = masked_softmax(scores, q_mask[:, None]) @ q  # (B, S, D)
        best_scores = scores.float().masked_fill(~q_mask[:, None], -1e30).amax(dim=-1)  # (B, S)
        to_passage = masked_softmax(best_scores, h_mask)[:, None].to(h.dtype) @ h  # (B, 1, D)
        return torch.cat([h, to_question, h * to_question, to_question * to_passage], dim=-1)  # (B, S, 4D)


class SelfAttention(nn.Module):
    """h (B, S, D) to [h; c; h * c], (B, S, 3D); c is the attention of each position to all other positions."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = PairScores(dim)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        others = mask[:, None] & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)  # (B, S, S)
        context = masked_softmax(self.scores(h, h), others) @ h  # (B, S, D)
        return torch.cat([h, context, h * context], dim=-1)  # (B, S, 3D)
