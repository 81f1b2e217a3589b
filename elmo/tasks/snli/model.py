"""ESIM (Chen et al. 2017): two sentences read alone, aligned word by word, compared, read again, pooled, judged.

    vectors -> biLSTM [-> + ELMo] -> soft alignment -> [a; a~; a - a~; a * a~] -> ReLU layer -> biLSTM
            -> [mean; max] of both -> two layers -> three classes

Both sentences go through the same layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.tasks.elmo_input import TokenInputs
from elmo.tasks.layers.attention import bi_attention, masked_max, masked_mean
from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.encoder import BiRNN
from elmo.tasks.task import Labels
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True, kw_only=True)
class SNLIConfig:
    """Shape of the classifier."""

    hidden_dim: int = 150  # of a direction, and of the layers between (300 in the paper)
    dropout: float = 0.3  # on what every layer reads (0.5 in the paper, for a training set six times as large)


@dataclass(frozen=True)
class SNLIBatch:
    """Pairs of sentences and their classes (B,); None: not known."""

    premise: TokenBatch
    hypothesis: TokenBatch
    classes: Tensor | None


@dataclass(frozen=True)
class Verdict:
    """The likeliest label of a pair, and how likely each is."""

    label: str
    probabilities: dict[str, float]


class SNLIModel(nn.Module):
    """The sequential form of ESIM."""

    def __init__(self, config: SNLIConfig, labels: Labels, inputs: TokenInputs) -> None:
        super().__init__()
        H, K = config.hidden_dim, len(labels["class"])
        self.inputs, self.labels = inputs, labels["class"]
        self.time_dropout, self.dropout = TimeDropout(config.dropout), nn.Dropout(config.dropout)
        self.encoder = BiRNN(inputs.dim, H)
        self.project = nn.Linear(4 * (self.encoder.dim + inputs.output_dim), H)
        self.composer = BiRNN(H, H)
        self.judge = nn.Sequential(
            self.dropout, nn.Linear(4 * self.composer.dim, H), nn.Tanh(), self.dropout, nn.Linear(H, K)
        )

    def loss(self, batch: SNLIBatch) -> Tensor:
        """Cross entropy, mean over pairs."""
        assert batch.classes is not None
        return nn.functional.cross_entropy(self.scores(batch).float(), batch.classes)

    def predict(self, batch: SNLIBatch) -> list[Verdict]:
        """A verdict a pair."""
        rows = torch.softmax(self.scores(batch).float(), dim=-1).tolist()
        return [Verdict(self.labels[row.index(max(row))], dict(zip(self.labels, row, strict=True))) for row in rows]

    def scores(self, batch: SNLIBatch) -> Tensor:
        """(B, K)."""
        a, b = self._encode(batch.premise), self._encode(batch.hypothesis)  # (B, S, D), (B, T, D)
        a_mask, b_mask = batch.premise.mask, batch.hypothesis.mask
        seen_by_a, seen_by_b = bi_attention(a, b, a_mask, b_mask)  # (B, S, D), (B, T, D)
        composed = [self._compose(a, seen_by_a, batch.premise), self._compose(b, seen_by_b, batch.hypothesis)]
        pooled = [
            f(x, mask) for x, mask in zip(composed, (a_mask, b_mask), strict=True) for f in (masked_mean, masked_max)
        ]
        return self.judge(torch.cat(pooled, dim=-1))

    def _encode(self, tokens: TokenBatch) -> Tensor:
        embedded = self.inputs(tokens)
        hidden = self.encoder(self.time_dropout(embedded.vectors), tokens.mask, tokens.packing)  # (B, T, 2H)
        return self.inputs.at_output(hidden, embedded)  # (B, T, 2H + D)

    def _compose(self, x: Tensor, seen: Tensor, tokens: TokenBatch) -> Tensor:
        compared = torch.cat([x, seen, x - seen, x * seen], dim=-1)  # (B, T, 4 (2H + D))
        read = self.time_dropout(torch.relu(self.project(compared)))  # (B, T, H)
        return self.composer(read, tokens.mask, tokens.packing)  # (B, T, 2H)
