"""The model of the ner task: a biLSTM-CRF tagger (Lample et al. 2016; Peters et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from elmo.tasks.elmo_input import TokenInputs
from elmo.tasks.layers.crf import CRF
from elmo.tasks.layers.dropout import TimeDropout
from elmo.tasks.layers.encoder import BiRNN
from elmo.tasks.layers.viterbi import bio_rules
from elmo.tasks.task import Labels
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True, kw_only=True)
class NERConfig:
    """Settings of the tagger."""

    hidden_dim: int = 100  # per direction (200 in the paper)
    num_layers: int = 2
    dropout: float = 0.5  # on the input, between layers and on the output


@dataclass(frozen=True)
class NERBatch:
    """Sentences and their tags (B, T), 0 at padding; tags are None for unlabelled text."""

    tokens: TokenBatch
    tags: Tensor | None


class NERModel(nn.Module):
    """A biLSTM-CRF that predicts only valid IOB2 tags."""

    def __init__(self, config: NERConfig, labels: Labels, inputs: TokenInputs) -> None:
        super().__init__()
        self.inputs, self.labels = inputs, labels["tag"]
        self.dropout = TimeDropout(config.dropout)
        self.encoder = BiRNN(inputs.dim, config.hidden_dim, config.num_layers, dropout=config.dropout)
        self.project = nn.Linear(self.encoder.dim + inputs.output_dim, len(self.labels))
        self.crf = CRF(len(self.labels), bio_rules(self.labels))

    def loss(self, batch: NERBatch) -> Tensor:
        """Negative log likelihood, mean over sentences."""
        assert batch.tags is not None
        return -self.crf.log_likelihood(self.scores(batch.tokens), batch.tags, batch.tokens.mask).mean()

    def predict(self, batch: NERBatch) -> list[list[str]]:
        """The best tags of each sentence."""
        best = self.crf.best(self.scores(batch.tokens), batch.tokens.mask)
        return [[self.labels[number] for number in row] for row in best]

    def scores(self, tokens: TokenBatch) -> Tensor:
        """Scores of K tags, (B, T, K)."""
        embedded = self.inputs(tokens)
        hidden = self.encoder(self.dropout(embedded.vectors), tokens.mask, tokens.packing)  # (B, T, 2H)
        hidden = self.inputs.at_output(self.dropout(hidden), embedded)  # (B, T, 2H + D)
        scores: Tensor = self.project(hidden)  # (B, T, K)
        return scores
