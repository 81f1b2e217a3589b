"""The model of the snli task: ESIM (Chen et al. 2017).

    vectors -> biLSTM [-> + ELMo] -> soft alignment -> [a; a~; a - a~; a * a~] -> ReLU layer -> biLSTM
            -> [mean; max] of both -> two layers -> three classes

Each sentence is encoded, its words are softly aligned with the other sentence and compared, and the comparison is
encoded and pooled. Both sentences use the same layers.
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
    """Settings of the classifier."""

    hidden_dim: int = 150  # per direction, and of the layers between (300 in the paper)
    dropout: float = 0.3  # on the input of every layer (0.5 in the paper, whose training set is six times as large)


@dataclass(frozen=True)
class SNLIBatch:
    """Pairs of sentences and their classes (B,); classes are None for unlabelled text."""

    premise: TokenBatch
    hypothesis: TokenBatch
    classes: Tensor | None


@dataclass(frozen=True)
class LabelPrediction:
    """The most probable label of a pair, and the probability of each label."""

    label: str
    probabilities: dict[str, float]


class SNLIModel(nn.Module):
    """The sequential variant of ESIM."""

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

    def predict(self, batch: SNLIBatch) -> list[LabelPrediction]:
        """One prediction per pair."""
        probabilities = torch.softmax(self.scores(batch).float(), dim=-1).tolist()  # (B, K)
        return [
            LabelPrediction(self.labels[row.index(max(row))], dict(zip(self.labels, row, strict=True)))
            for row in probabilities
        ]

    def scores(self, batch: SNLIBatch) -> Tensor:
        """Scores of K classes, (B, K)."""
        a, b = self._encode(batch.premise), self._encode(batch.hypothesis)  # (B, S, 2H + D), (B, T, 2H + D)
        a_mask, b_mask = batch.premise.mask, batch.hypothesis.mask
        a_aligned, b_aligned = bi_attention(a, b, a_mask, b_mask)  # (B, S, 2H + D), (B, T, 2H + D)
        composed = [self._compose(a, a_aligned, batch.premise), self._compose(b, b_aligned, batch.hypothesis)]
        pooled = [
            pool(x, mask)
            for x, mask in zip(composed, (a_mask, b_mask), strict=True)
            for pool in (masked_mean, masked_max)
        ]
        scores: Tensor = self.judge(torch.cat(pooled, dim=-1))  # (B, K)
        return scores

    def _encode(self, tokens: TokenBatch) -> Tensor:
        embedded = self.inputs(tokens)
        hidden = self.encoder(self.time_dropout(embedded.vectors), tokens.mask, tokens.packing)  # (B, T, 2H)
        return self.inputs.at_output(hidden, embedded)  # (B, T, 2H + D)

    def _compose(self, x: Tensor, aligned: Tensor, tokens: TokenBatch) -> Tensor:
        compared = torch.cat([x, aligned, x - aligned, x * aligned], dim=-1)  # (B, T, 4 (2H + D))
        projected = self.time_dropout(torch.relu(self.project(compared)))  # (B, T, H)
        composed: Tensor = self.composer(projected, tokens.mask, tokens.packing)  # (B, T, 2H)
        return composed
