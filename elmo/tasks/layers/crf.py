"""Linear-chain CRF (Lafferty et al. 2001): how likely a row of labels is, and which row is likeliest."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.layers.viterbi import as_scores, viterbi

NOTHING = -1e30  # log of zero that stays finite in sums of a few hundred


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
        """Log of the sum over all rows of labels, (B,).

        Steps are matrices of label pairs and their product is taken in halves: log2(T) products, not T.
        """
        transitions, start, end = self._weights()
        B, T, K = scores.shape
        still = torch.full((K, K), NOTHING, device=scores.device).fill_diagonal_(0.0)  # changes no sum
        steps = transitions + scores[:, 1:, None]  # (B, T-1, K, K)
        steps = torch.where(mask[:, 1:, None, None], steps, still)
        while steps.shape[1] > 1:
            if steps.shape[1] % 2:
                steps = torch.cat([steps, still.expand(B, 1, K, K)], dim=1)
            pairs = steps[:, ::2, :, :, None] + steps[:, 1::2, None]  # (B, n/2, K, K, K)
            steps = torch.logsumexp(pairs, dim=3)  # (B, n/2, K, K)
        total = start + scores[:, 0]  # (B, K)
        if T > 1:
            total = torch.logsumexp(total[:, :, None] + steps[:, 0], dim=1)
        return torch.logsumexp(total + end, dim=1)  # (B,)

    def _path_score(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        transitions, start, end = self._weights()
        inside = mask.to(scores.dtype)  # (B, T)
        single = (scores.gather(2, labels[:, :, None])[:, :, 0] * inside).sum(dim=1)  # (B,)
        pairs = (transitions[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]).sum(dim=1)  # (B,)
        last = labels.gather(1, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0))[:, 0]  # (B,)
        return single + pairs + start[labels[:, 0]] + end[last]
