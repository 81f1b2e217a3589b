"""The two attentions of the squad model: of the passage to the question (Seo et al. 2017) and to itself.

Both score a pair of places with learned weights of each side and of their product: w1 h_i + w2 q_j + w3 (h_i * q_j).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.layers.attention import masked_softmax


class PairScores(nn.Module):
    """Scores of every place of h (B, S, D) with every place of q (B, T, D): (B, S, T)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(dim, 1, bias=False), nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.empty(dim))
        nn.init.uniform_(self.both, -(dim**-0.5), dim**-0.5)

    def forward(self, h: Tensor, q: Tensor) -> Tensor:
        together = (h * self.both) @ q.transpose(1, 2)  # (B, S, T)
        return together + self.left(h) + self.right(q).transpose(1, 2)


class BiAttention(nn.Module):
    """The passage as it sees the question, (B, S, 4D): [h; c; h * c; c * a], c what h_i sees of the question, a what
    the question sees of the passage."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = PairScores(dim)

    def forward(self, h: Tensor, q: Tensor, h_mask: Tensor, q_mask: Tensor) -> Tensor:
        scores = self.scores(h, q)  # (B, S, T)
        seen = masked_softmax(scores, q_mask[:, None]) @ q  # (B, S, D)
        closest = scores.float().masked_fill(~q_mask[:, None], -1e30).amax(dim=-1)  # (B, S)
        asked = masked_softmax(closest, h_mask)[:, None].to(h.dtype) @ h  # (B, 1, D)
        return torch.cat([h, seen, h * seen, seen * asked], dim=-1)


class SelfAttention(nn.Module):
    """The passage as it sees itself, no place itself alone: [h; c; h * c], (B, S, 3D)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scores = PairScores(dim)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        others = mask[:, None] & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)  # (B, S, S)
        seen = masked_softmax(self.scores(h, h), others) @ h  # (B, S, D)
        return torch.cat([h, seen, h * seen], dim=-1)
