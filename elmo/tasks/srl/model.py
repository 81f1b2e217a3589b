"""The model of the srl task: a deep tagger of roles for one marked predicate (He et al. 2017).

[vectors; predicate mark] -> alternating LSTMs with highways -> scores of tags -> Viterbi decoding under IOB2
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.tasks.elmo_input import TokenInputs
from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.viterbi import as_scores, bio_rules, viterbi
from elmo.tasks.srl.encoder import AlternatingLSTM
from elmo.tasks.task import Labels
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True, kw_only=True)
class SRLConfig:
    """Settings of the tagger."""

    hidden_dim: int = 200  # per layer; a layer has one direction (300 in the paper)
    num_layers: int = 4  # half of them from right to left (8 in the paper)
    mark_dim: int = 50  # of the vector that marks the predicate (100 in the paper)
    input_dropout: float = 0.2
    dropout: float = 0.1  # between layers
    recurrent_gate: bool = False  # highways inside the recurrence, as published; slow


@dataclass(frozen=True)
class SRLBatch:
    """Sentences, predicate marks (B, T), 1 at the predicate, and tags (B, T), -1 where there is no loss, or None."""

    tokens: TokenBatch
    marks: Tensor
    tags: Tensor | None


class SRLModel(nn.Module):
    """A tagger that predicts only valid IOB2 tags. By default ELMo is at the input, where it helps in the paper."""

    def __init__(self, config: SRLConfig, labels: Labels, inputs: TokenInputs) -> None:
        super().__init__()
        self.inputs, self.labels = inputs, labels["tag"]
        self.dropout = TimeDropout(config.input_dropout)
        self.mark = nn.Embedding(2, config.mark_dim)
        self.encoder = AlternatingLSTM(
            inputs.dim + config.mark_dim,
            config.hidden_dim,
            config.num_layers,
            dropout=config.dropout,
            recurrent_gate=config.recurrent_gate,
        )
        self.project = nn.Linear(config.hidden_dim + inputs.output_dim, len(self.labels))
        allowed, start, end = bio_rules(self.labels)
        self.register_buffer("_allowed", as_scores(allowed), persistent=False)
        self.register_buffer("_start", as_scores(start), persistent=False)
        self.register_buffer("_end", as_scores(end), persistent=False)

    def loss(self, batch: SRLBatch) -> Tensor:
        """Cross entropy of the tags, mean over tokens."""
        assert batch.tags is not None
        scores = self.scores(batch).float().flatten(0, 1)  # (B*T, K)
        return nn.functional.cross_entropy(scores, batch.tags.flatten(), ignore_index=-1)

    def predict(self, batch: SRLBatch) -> list[list[str]]:
        """The best valid tags of each sentence."""
        log_probabilities = torch.log_softmax(self.scores(batch).float(), dim=-1)  # (B, T, K)
        rules = [self.get_buffer(name) for name in ("_allowed", "_start", "_end")]
        best, _ = viterbi(log_probabilities, batch.tokens.mask, *rules)
        return [[self.labels[number] for number in row] for row in best]

    def scores(self, batch: SRLBatch) -> Tensor:
        """Scores of K tags, (B, T, K)."""
        embedded = self.inputs(batch.tokens)
        marked = torch.cat([self.dropout(embedded.vectors), self.mark(batch.marks)], dim=-1)  # (B, T, dim + mark_dim)
        hidden = self.encoder(marked * batch.tokens.mask[:, :, None], batch.tokens.mask)  # (B, T, H)
        scores: Tensor = self.project(self.inputs.at_output(hidden, embedded))  # (B, T, K)
        return scores
