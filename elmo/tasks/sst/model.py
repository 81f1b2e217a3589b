"""The model of the sst task: the biattentive classification network (McCann et al. 2017).

vectors -> ReLU layer -> biLSTM -> self-attention -> biLSTM (the integrator) -> [max; mean; min; self-attentive pooling]
        -> three normalised maxout layers -> five classes
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.tasks.elmo_input import TokenInputs
from elmo.tasks.layers.attention import attend, masked_max, masked_mean, masked_min, masked_softmax
from elmo.tasks.layers.encoder import BiRNN
from elmo.tasks.task import Labels
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True, kw_only=True)
class SSTConfig:
    """Settings of the classifier."""

    hidden_dim: int = 100  # per direction, and of the first layer (300 in the paper)
    phrases: bool = True  # train on every phrase of the trees, not only on whole sentences
    input_dropout: float = 0.25
    dropout: float = 0.25  # before the maxout layers
    maxout_pieces: int = 4


@dataclass(frozen=True)
class SSTBatch:
    """Sentences and their classes (B,); classes are None for unlabelled text."""

    tokens: TokenBatch
    classes: Tensor | None


class SSTModel(nn.Module):
    """A biattentive classifier of single sentences."""

    def __init__(self, config: SSTConfig, labels: Labels, inputs: TokenInputs) -> None:
        super().__init__()
        H, K = config.hidden_dim, len(labels["class"])
        self.inputs = inputs
        self.dropout = nn.Dropout(config.input_dropout)
        self.first = nn.Linear(inputs.dim, H)
        self.encoder = BiRNN(H, H)
        self.integrator = BiRNN(3 * self.encoder.dim, H)
        pooled_dim = self.integrator.dim + inputs.output_dim
        self.attention = nn.Linear(pooled_dim, 1)
        widths = (4 * pooled_dim, pooled_dim, pooled_dim // 2)
        self.maxout = nn.Sequential(
            Maxout(widths[0], widths[1], config.maxout_pieces, dropout=config.dropout),
            Maxout(widths[1], widths[2], config.maxout_pieces, dropout=config.dropout),
            Maxout(widths[2], K, config.maxout_pieces, dropout=0.0),
        )

    def loss(self, batch: SSTBatch) -> Tensor:
        """Cross entropy, mean over sentences."""
        assert batch.classes is not None
        return nn.functional.cross_entropy(self.scores(batch.tokens).float(), batch.classes)

    def predict(self, batch: SSTBatch) -> list[int]:
        """The most probable class of each sentence."""
        classes: list[int] = self.scores(batch.tokens).argmax(dim=1).tolist()
        return classes

    def scores(self, tokens: TokenBatch) -> Tensor:
        """Scores of K classes, (B, K)."""
        embedded = self.inputs(tokens)
        mask = tokens.mask
        x = torch.relu(self.first(self.dropout(embedded.vectors)))  # (B, T, H)
        x = self.encoder(self.dropout(x), mask, tokens.packing)  # (B, T, 2H)
        context = attend(x @ x.transpose(1, 2), x, mask)  # (B, T, 2H)
        combined = torch.cat([x, x - context, x * context], dim=-1)  # (B, T, 6H)
        y = self.inputs.at_output(self.integrator(combined, mask, tokens.packing), embedded)  # (B, T, 2H + D)
        weights = masked_softmax(self.attention(y)[:, :, 0], mask)  # (B, T)
        attended = (weights[:, None] @ y)[:, 0]  # (B, 2H + D)
        pooled = [masked_max(y, mask), masked_mean(y, mask), masked_min(y, mask), attended]
        scores: Tensor = self.maxout(torch.cat(pooled, dim=-1))  # (B, K)
        return scores


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
