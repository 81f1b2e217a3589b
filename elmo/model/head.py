"""The softmax of the language model: top-layer states of one direction to log-probabilities of words.

It is the last part of the network; not every model has it. Memory is bounded: the vocabulary is scored in blocks, so a
million words need no more memory than one block.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from elmo.model.config import CLUSTER_DIVISOR, HeadConfig

VOCAB_BLOCK = 16_384  # words per block
Normalizer = Callable[[Tensor, Tensor, Tensor], Tensor]  # rows (V, P), biases (V,), states (N, P) -> (N,)
CPU_SCORES = 1 << 21  # scores per block on a CPU: they stay in its cache between the product and the exponentials


class SoftmaxHead(nn.Module):
    """One weight row and one bias per word, shared by both directions; hidden states are (N, P)."""

    def __init__(self, vocab_size: int, proj_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, proj_dim))
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        nn.init.normal_(self.weight, std=proj_dim**-0.5)

    @property
    def vocab_size(self) -> int:
        return len(self.bias)

    def log_normalizer(self, hidden: Tensor, block: int | None = None) -> Tensor:
        """The logarithm of the sum of exp(score) over all words, (N,)."""
        if block is None:
            on_cpu = hidden.device.type == "cpu"
            block = max(256, min(VOCAB_BLOCK, CPU_SCORES // max(1, len(hidden)))) if on_cpu else VOCAB_BLOCK
        parts = [self._scores(hidden, a, block).logsumexp(dim=-1) for a in range(0, self.vocab_size, block)]
        return torch.stack(parts).logsumexp(dim=0)

    def all_log_probs(self, hidden: Tensor) -> Tensor:
        """The log-probability of every word, (N, V); the caller bounds N."""
        return torch.addmm(self.bias, hidden, self.weight.t()).log_softmax(dim=-1)

    def log_probs(self, hidden: Tensor, targets: Tensor, normalizer: Normalizer | None = None) -> Tensor:
        """The log-probability of each state's target word, (N,); `normalizer` replaces `log_normalizer`."""
        score = (hidden * self.weight[targets]).sum(dim=-1) + self.bias[targets]  # (N,)
        if normalizer is None:
            return score - self.log_normalizer(hidden)
        return score - normalizer(self.weight, self.bias, hidden)

    def best(
        self, hidden: list[Tensor], k: int, block: int = VOCAB_BLOCK, offset: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The k words with the highest log-probability, summed over the given states: values and ids, each (N, k).

        With one state it is the prediction of one direction; with both, it gives substitutes for a word. An `offset`
        (V,) is added to the words' values for the ranking; the values that are returned do not include it.
        """
        ranks = hidden[0].new_full((len(hidden[0]), 0), 0.0)  # by which words are ranked: log-probability plus offset
        ids = torch.empty((len(hidden[0]), 0), dtype=torch.long, device=hidden[0].device)
        normalizer = torch.zeros_like(hidden[0][:, 0])  # (N,)
        for states in hidden:
            normalizer = normalizer + self.log_normalizer(states, block)
        for start in range(0, self.vocab_size, block):
            scores = sum((self._scores(states, start, block) for states in hidden), torch.zeros(()).to(hidden[0]))
            scores = scores if offset is None else scores + offset[start : start + block]  # (N, block)
            top, index = scores.topk(min(k, scores.shape[-1]), dim=-1)  # (N, <= k)
            ranks, ids = torch.cat([ranks, top], dim=-1), torch.cat([ids, index + start], dim=-1)
            ranks, order = ranks.topk(min(k, ranks.shape[-1]), dim=-1)
            ids = ids.gather(-1, order)
        values = ranks if offset is None else ranks - offset[ids]
        return values - normalizer[:, None], ids

    def _scores(self, hidden: Tensor, start: int, block: int) -> Tensor:
        return torch.addmm(
            self.bias[start : start + block], hidden, self.weight[start : start + block].t()
        )  # (N, block)


class AdaptiveHead(nn.Module):
    """Frequent words at full width, clusters of rarer words at a fraction of it (Grave et al. 2017); same interface."""

    def __init__(self, vocab_size: int, proj_dim: int, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(
            proj_dim, vocab_size, list(cutoffs), div_value=CLUSTER_DIVISOR, head_bias=True
        )

    def all_log_probs(self, hidden: Tensor) -> Tensor:
        """The log-probability of every word, (N, V); the caller bounds N."""
        log_probs: Tensor = self.softmax.log_prob(hidden)
        return log_probs

    def log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The log-probability of each state's target word, (N,)."""
        output: Tensor = self.softmax(hidden, targets).output
        return output

    def best(
        self, hidden: list[Tensor], k: int, block: int = VOCAB_BLOCK, offset: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The k words with the highest log-probability, summed over the given states: values and ids, each (N, k).

        An `offset` (V,) is added to the words' values for the ranking; the values that are returned do not include it.
        """
        rows = max(1, (1 << 26) // self.vocab_size)  # states that are scored against the whole vocabulary at once
        parts = []
        for start in range(0, len(hidden[0]), rows):
            scores = torch.stack([self.softmax.log_prob(states[start : start + rows]) for states in hidden]).sum(dim=0)
            ids = (scores if offset is None else scores + offset).topk(min(k, self.vocab_size), dim=-1).indices
            parts.append((scores.gather(-1, ids), ids))  # each (rows, k)
        return torch.cat([values for values, _ in parts]), torch.cat([ids for _, ids in parts])


Head = SoftmaxHead | AdaptiveHead


def make_head(config: HeadConfig, proj_dim: int) -> Head:
    """The module that a head config describes."""
    if config.kind == "adaptive":
        return AdaptiveHead(config.vocab_size, proj_dim, config.cutoffs)
    return SoftmaxHead(config.vocab_size, proj_dim)
