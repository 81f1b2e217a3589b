"""The model of the squad task: BiDAF with self-attention (Clark and Gardner 2017).

vectors -> biGRU [-> + ELMo] -> attention between passage and question -> ReLU layer
        -> + (biGRU -> self-attention -> ReLU layer) -> biGRU -> start; [biGRU of both -> end]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.tasks.elmo_input import TokenInputs
from elmo.tasks.layers.attention import masked_log_softmax
from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.encoder import BiRNN
from elmo.tasks.squad.attention import BiAttention, SelfAttention
from elmo.tasks.task import Labels
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True, kw_only=True)
class SQuADConfig:
    """Settings of the model."""

    hidden_dim: int = 90  # per direction, as in the paper
    dropout: float = 0.2  # on the input of every layer, one mask for all tokens of a row
    max_answer: int = 17  # tokens of the longest predicted answer
    max_passage: int = 400  # tokens; longer passages are not used for training


@dataclass(frozen=True)
class SQuADBatch:
    """Questions, passages, and where gold answers start and end, (B, T) bool, or None for unlabelled text."""

    question: TokenBatch
    passage: TokenBatch
    starts: Tensor | None
    ends: Tensor | None


@dataclass(frozen=True)
class AnswerPrediction:
    """An answer as first and last token of the passage, both included, and the probability of this span."""

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
        """Negative log probability of the gold starts and ends, mean over questions."""
        assert batch.starts is not None
        assert batch.ends is not None
        return span_loss(*self.scores(batch), batch.passage.mask, batch.starts, batch.ends)

    def predict(self, batch: SQuADBatch) -> list[AnswerPrediction]:
        """The best span of each passage."""
        first, last, probability = best_spans(*self.scores(batch), batch.passage.mask, self.max_answer)
        spans = zip(first.tolist(), last.tolist(), probability.tolist(), strict=True)
        return [AnswerPrediction(*span) for span in spans]

    def scores(self, batch: SQuADBatch) -> tuple[Tensor, Tensor]:
        """Scores of each passage token as the start and as the end of the answer, (B, T) each."""
        mask, packing = batch.passage.mask, batch.passage.packing
        q, h = self._encode(batch.question), self._encode(batch.passage)  # (B, S, 2H + D), (B, T, 2H + D)
        attended = self.attention(h, q, mask, batch.question.mask)  # (B, T, 4 (2H + D))
        x = torch.relu(self.merge(self.dropout(attended)))  # (B, T, 2H)
        y = self.self_encoder(self.dropout(x), mask, packing)  # (B, T, 2H)
        y = torch.relu(self.self_merge(self.dropout(self.self_attention(y, mask))))  # (B, T, 2H)
        x = (x + y) * mask[:, :, None]
        starts = self.start_encoder(self.dropout(x), mask, packing)  # (B, T, 2H)
        ends = self.end_encoder(self.dropout(torch.cat([x, starts], dim=-1)), mask, packing)  # (B, T, 2H)
        return self.start(starts)[:, :, 0].float(), self.end(ends)[:, :, 0].float()

    def _encode(self, tokens: TokenBatch) -> Tensor:
        embedded = self.inputs(tokens)
        hidden = self.encoder(self.dropout(embedded.vectors), tokens.mask, tokens.packing)  # (B, T, 2H)
        encoded: Tensor = self.dropout(self.inputs.at_output(hidden, embedded))  # (B, T, 2H + D)
        return encoded


def best_spans(starts: Tensor, ends: Tensor, mask: Tensor, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """First and last token (B,) of the best span of at most max_length tokens per row, and its probability (B,).

    starts and ends (B, T) are scores. Start and end are independent, so the probability is a product; spans longer than
    the limit are excluded.
    """
    joint = masked_log_softmax(starts, mask)[:, :, None] + masked_log_softmax(ends, mask)[:, None]  # (B, T, T)
    T = mask.shape[1]
    allowed = torch.ones(T, T, dtype=torch.bool, device=mask.device).triu().tril(max_length - 1)  # (T, T)
    flat = joint.masked_fill(~allowed, float("-inf")).flatten(1)  # (B, T*T)
    log_probability, index = flat.max(dim=1)
    return index // T, index % T, log_probability.exp()


def span_loss(starts: Tensor, ends: Tensor, mask: Tensor, gold_starts: Tensor, gold_ends: Tensor) -> Tensor:
    """Negative log probability of any gold start plus that of any gold end; mean over rows.

    gold_starts and gold_ends (B, T) are true where a gold answer begins or ends; a row may have several answers.
    """
    of_start, of_end = (
        torch.logsumexp(masked_log_softmax(scores, mask).masked_fill(~gold, -1e30), dim=1)  # (B,)
        for scores, gold in ((starts, gold_starts), (ends, gold_ends))
    )
    return -(of_start + of_end).mean()
