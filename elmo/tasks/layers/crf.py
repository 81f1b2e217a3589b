"""Linear-chain CRF (Lafferty et al. 2001): log likelihood of a label sequence, and the most likely sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmo.tasks.layers.viterbi import as_scores, viterbi

LOG_ZERO = -1e30  # log of zero; sums of a few hundred of them are still finite


class CRF(nn.Module):
    """CRF over scores (B, T, K) of K labels, with learned transition scores.

    `rules` restrict decoding and training to allowed sequences: allowed (K, K) from row to column, start (K,) and end
    (K,), all bool, as `bio_rules` returns them.
    """

    def __init__(self, num_labels: int, rules: tuple[Tensor, Tensor, Tensor] | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))
        self.start = nn.Parameter(torch.zeros(num_labels))
        self.end = nn.Parameter(torch.zeros(num_labels))
        unrestricted = torch.ones(num_labels, dtype=torch.bool)
        allowed, first, last = rules or (unrestricted[:, None] & unrestricted, unrestricted, unrestricted)
        self.register_buffer("_allowed", as_scores(allowed), persistent=False)
        self.register_buffer("_start", as_scores(first), persistent=False)
        self.register_buffer("_end", as_scores(last), persistent=False)

    def log_likelihood(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Log likelihood (B,) of the labels (B, T). Padding is on the right, and each row has at least one token."""
        scores = scores.float()
        return self._path_score(scores, labels, mask) - self._all_paths(scores, mask)

    def best(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        """The most likely labels of each row, one per token."""
        transitions, start, end = self._weights()
        return viterbi(scores, mask, transitions, start, end)[0]

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        rules = [self.get_buffer(name) for name in ("_allowed", "_start", "_end")]
        return self.transitions.float() + rules[0], self.start.float() + rules[1], self.end.float() + rules[2]

    def _all_paths(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log of the sum over all label sequences, (B,).

        Each step is a matrix over pairs of labels. Neighbouring matrices are multiplied pairwise, which needs log2(T)
        rounds instead of T.
        """
        transitions, start, end = self._weights()
        B, T, K = scores.shape
        identity = torch.full((K, K), LOG_ZERO, device=scores.device).fill_diagonal_(0.0)  # in log space
        steps = transitions + scores[:, 1:, None]  # (B, T-1, K, K)
        steps = torch.where(mask[:, 1:, None, None], steps, identity)
        while steps.shape[1] > 1:
            if steps.shape[1] % 2:
                steps = torch.cat([steps, identity.expand(B, 1, K, K)], dim=1)
            pairs = steps[:, ::2, :, :, None] + steps[:, 1::2, None]  # (B, n/2, K, K, K)
            steps = torch.logsumexp(pairs, dim=3)  # (B, n/2, K, K)
        total = start + scores[:, 0]  # (B, K)
        if T > 1:
            total = torch.logsumexp(total[:, :, None] + steps[:, 0], dim=1)
        return torch.logsumexp(total + end, dim=1)  # (B,)

    def _path_score(self, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The score of one label sequence per row, (B,)."""
        transitions, start, end = self._weights()
        factors = mask.to(scores.dtype)  # (B, T)
        single = (scores.gather(2, labels[:, :, None])[:, :, 0] * factors).sum(dim=1)  # (B,)
        pairs = (transitions[labels[:, :-1], labels[:, 1:]] * factors[:, 1:]).sum(dim=1)  # (B,)
        last = labels.gather(1, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0))[:, 0]  # (B,)
        return single + pairs + start[labels[:, 0]] + end[last]
