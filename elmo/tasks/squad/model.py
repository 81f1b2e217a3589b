"""The reader (Clark and Gardner 2017): question and passage read alike, attention both ways and to itself, two ends.

vectors -> biGRU [-> + ELMo] -> passage sees question -> ReLU layer
        -> + (biGRU -> passage sees itself -> ReLU layer) -> biGRU -> start; [biGRU of both -> end]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.tasks.elmo_input import TokenInputs
from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.encoder import BiRNN
from elmo.tasks.squad.attention import BiAttention, SelfAttention
from elmo.tasks.squad.spans import best_spans, span_loss
from elmo.tasks.task import Labels
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True, kw_only=True)
class SQuADConfig:
    """Shape of the reader."""

    hidden_dim: int = 90  # of a direction, as in the paper
    dropout: float = 0.2  # on what every layer reads, one mask for all tokens of a row
    max_answer: int = 17  # tokens of the longest answer given
    max_passage: int = 400  # tokens; longer passages are not trained on


@dataclass(frozen=True)
class SQuADBatch:
    """Questions, passages (B, T), and where gold answers start and end, (B, T) bool; None: not known."""

    question: TokenBatch
    passage: TokenBatch
    starts: Tensor | None
    ends: Tensor | None


@dataclass(frozen=True)
class SpanScores:
    """An answer as tokens of the passage, both included, and the model's probability of its two ends."""

    first: int
    last: int
    probability: float


class SQuADModel(nn.Module):
    """BiDAF with self-attention and GRUs."""

    def __init__(self, config: SQuADConfig, labels: Labels, inputs: TokenInputs) -> None:
        super().__init__()
        H = config.hidden_dim
        self.inputs, self.max_answer = inputs, config.max_answer
        self.dropout = TimeDropout(config.dropout)
        self.encoder = BiRNN(inputs.dim, H, cell="gru")
        encoded = self.encoder.dim + inputs.output_dim
        self.attention = BiAttention(encoded)
        self.merge = nn.Linear(4 * encoded, 2 * H)
        self.self_encoder = BiRNN(2 * H, H, cell="gru")
        self.self_attention = SelfAttention(2 * H)
        self.self_merge = nn.Linear(6 * H, 2 * H)
        self.start_encoder = BiRNN(2 * H, H, cell="gru")
        self.end_encoder = BiRNN(4 * H, H, cell="gru")
        self.start, self.end = nn.Linear(2 * H, 1), nn.Linear(2 * H, 1)

    def loss(self, batch: SQuADBatch) -> Tensor:
        """Minus log probability of the gold starts and ends, mean over questions."""
        assert batch.starts is not None
        assert batch.ends is not None
        return span_loss(*self.scores(batch), batch.passage.mask, batch.starts, batch.ends)

    def predict(self, batch: SQuADBatch) -> list[SpanScores]:
        """The best span of each passage."""
        first, last, probability = best_spans(*self.scores(batch), batch.passage.mask, self.max_answer)
        columns = (first.tolist(), last.tolist(), probability.tolist())
        return [SpanScores(*row) for row in zip(*columns, strict=True)]

    def scores(self, batch: SQuADBatch) -> tuple[Tensor, Tensor]:
        """Of each passage token as the answer's start and as its end, (B, T)."""
        mask, packing = batch.passage.mask, batch.passage.packing
        q, h = self._encode(batch.question), self._encode(batch.passage)  # (B, S, D), (B, T, D)
        seen = self.attention(h, q, mask, batch.question.mask)  # (B, T, 4D)
        x = torch.relu(self.merge(self.dropout(seen)))  # (B, T, 2H)
        y = self.self_encoder(self.dropout(x), mask, packing)  # (B, T, 2H)
        y = torch.relu(self.self_merge(self.dropout(self.self_attention(y, mask))))  # (B, T, 2H)
        x = (x + y) * mask[:, :, None]
        begins = self.start_encoder(self.dropout(x), mask, packing)  # (B, T, 2H)
        ends = self.end_encoder(self.dropout(torch.cat([x, begins], dim=-1)), mask, packing)  # (B, T, 2H)
        return self.start(begins)[:, :, 0].float(), self.end(ends)[:, :, 0].float()

    def _encode(self, tokens: TokenBatch) -> Tensor:
        embedded = self.inputs(tokens)
        hidden = self.encoder(self.dropout(embedded.vectors), tokens.mask, tokens.packing)  # (B, T, 2H)
        return self.dropout(self.inputs.at_output(hidden, embedded))  # (B, T, 2H + D)
