"""Linear-chain CRF (Lafferty et al. 2001): how likely a row of labels is, and which row is likeliest."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.layers.viterbi import as_scores, viterbi


class CRF(nn.Module):
    """Scores (B, T, K) of single labels, learned scores of neighbours on top; rules bind the best path and training.

    `rules`: allowed (K, K) from row to column, start (K,), end (K,), all bool, as `bio_rules` gives them.
    """

    def __init__(self, num_labels: int, rules: tuple[Tensor, Tensor, Tensor] | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.start = nn.Parameter(torch.zeros(num_labels))
        self.end = nn.Parameter(torch.zeros(num_labels))
        free = torch.ones(num_labels, dtype=torch.bool)
        allowed, first, last = rules or (free[:, None] & free, free, free)
        self.register_buffer("_allowed", as_scores(allowed), persistent=False)
        self.register_buffer("_start", as_scores(first), persistent=False)
        self.register_buffer("_end", as_scores(last), persistent=False)

    def log_likelihood(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Of each row's labels (B, T), (B,). Padding is on the right, and each row has a token."""
        scores = scores.float()
        return self._path_score(scores, labels, mask) - self._all_paths(scores, mask)

    def best(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """The likeliest labels of each row, as long as the row."""
        transitions, start, end = self._weights()
        return viterbi(scores, mask, transitions, start, end)[0]

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        rules = [self.get_buffer(name) for name in ("_allowed", "_start", "_end")]
        return self.transitions.float() + rules[0], self.start.float() + rules[1], self.end.float() + rules[2]

    def _all_paths(self, scores: Tensor, mask: Tensor) -> Tensor:
        transitions, start, end = self._weights()
        total = start + scores[:, 0]  # (B, K)
        for t in range(1, scores.shape[1]):
            grown = torch.logsumexp(total[:, :, None] + transitions, dim=1) + scores[:, t]  # (B, K)
            total = torch.where(mask[:, t, None], grown, total)
        return torch.logsumexp(total + end, dim=1)  # (B,)

    def _path_score(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        transitions, start, end = self._weights()
        inside = mask.to(scores.dtype)  # (B, T)
        single = (scores.gather(2, labels[:, :, None])[:, :, 0] * inside).sum(dim=1)  # (B,)
        pairs = (transitions[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]).sum(dim=1)  # (B,)
        last = labels.gather(1, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0))[:, 0]  # (B,)
        return single + pairs + start[labels[:, 0]] + end[last]
