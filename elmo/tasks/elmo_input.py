"""What a task model reads for each token: word vector, characters, ELMo; and ELMo once more at its encoder's output.

Stands between TokenBatch and every task's network (paper section 3.3). The biLM is frozen, and its layers come with the
batch, or it learns along and is a part of this module. Two places have two mixes over one pass of the biLM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmo.embed.embedder import Embedder
from elmo.model.mix import ScalarMix
from elmo.tasks.config import RunConfig
from elmo.tasks.layers.char_cnn import CharCNN
from elmo.tasks.token_batch import TokenBatch


@dataclass(frozen=True)
class Embedded:
    """vectors (B, T, dim) for the encoder, mask (B, T), and the biLM's layers (L+1, B, T, D) for its output or None."""

    vectors: Tensor
    mask: Tensor
    layers: Tensor | None


class TokenInputs(nn.Module):
    """Concatenates what the settings ask for. `dim` is the input's width, `output_dim` what `at_output` adds."""

    def __init__(
        self,
        *,
        words: nn.Embedding | None = None,
        chars: CharCNN | None = None,
        input_mix: ScalarMix | None = None,
        output_mix: ScalarMix | None = None,
        elmo_dim: int = 0,
        bilm: nn.Module | None = None,  # learns along; None: layers come with the batch
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.words, self.chars, self.bilm = words, chars, bilm
        self.input_mix, self.output_mix = input_mix, output_mix
        self.word_dropout = nn.Dropout(word_dropout)
        self.output_dim = elmo_dim if output_mix is not None else 0
        self.dim = (
            (words.embedding_dim if words is not None else 0)
            + (chars.dim if chars is not None else 0)
            + (elmo_dim if input_mix is not None else 0)
        )

    def forward(self, tokens: TokenBatch) -> Embedded:
        """Vectors of padding are zero."""
        parts = []
        if self.words is not None:
            parts.append(self.word_dropout(self.words(tokens.words)))  # (B, T, words)
        if self.chars is not None:
            assert tokens.chars is not None
            parts.append(self.chars(tokens.chars))  # (B, T, chars)
        layers = self._layers(tokens)
        if self.input_mix is not None:
            assert layers is not None
            parts.append(self.input_mix(layers, tokens.mask))  # (B, T, D)
        vectors = torch.cat([part.float() for part in parts], dim=-1)  # (B, T, dim)
        return Embedded(vectors * tokens.mask[:, :, None], tokens.mask, layers if self.output_mix is not None else None)

    def at_output(self, encoded: Tensor, embedded: Embedded) -> Tensor:
        """[encoded; ELMo] (B, T, H + output_dim) with the second mix, or `encoded` as it is."""
        if self.output_mix is None:
            return encoded
        assert embedded.layers is not None
        mixed = self.output_mix(embedded.layers, embedded.mask) * embedded.mask[:, :, None]  # (B, T, D)
        return torch.cat([encoded, mixed.to(encoded.dtype)], dim=-1)

    def penalty(self) -> Tensor | float:
        """lambda * ||w||^2 of the mixes, for the loss."""
        return sum((mix.penalty() for mix in (self.input_mix, self.output_mix) if mix is not None), start=0.0)

    def mixes(self) -> dict[str, dict[str, object]]:
        """Softmax-normalised weights and gamma by place, for the record (paper Figure 2)."""
        places = {"input": self.input_mix, "output": self.output_mix}
        return {
            place: {"weights": mix.layer_weights().tolist(), "gamma": mix.gamma.item()}
            for place, mix in places.items()
            if mix is not None
        }

    def _layers(self, tokens: TokenBatch) -> Tensor | None:
        if self.bilm is None:
            return None if tokens.layers is None else tokens.layers.float()
        assert tokens.rows is not None
        layers: Tensor = self.bilm(tokens.rows.long()).layers[:, :, 1:-1]  # (L+1, B, T, D)
        return layers * tokens.mask[None, :, :, None]  # the mark after a shorter sentence is not a token


def learning_bilm(embedder: Embedder) -> nn.Module:
    """The embedder's network, to learn with a task. It loses its softmax, which a task's loss never reaches."""
    embedder.model.head = None
    return embedder.model.requires_grad_(True)


def make_inputs(config: RunConfig, start: np.ndarray | None, embedder: Embedder | None) -> TokenInputs:
    """The input part of a model, by the settings. `start` (V, dim): first values of the word table, or None."""
    words = None
    if start is not None:
        words = nn.Embedding.from_pretrained(torch.from_numpy(start), freeze=not config.words.tuned, padding_idx=0)
    chars = config.chars
    spell = CharCNN(chars.dim, chars.num_filters, chars.width, chars.dropout) if chars.num_filters else None
    mixes: dict[str, ScalarMix | None] = {"input": None, "output": None}
    elmo = config.elmo
    if embedder is not None:
        for place in mixes if elmo.place == "both" else (elmo.place,):
            mixes[place] = ScalarMix(
                embedder.num_layers,
                layer_norm=elmo.layer_norm,
                top_only=elmo.layers == "top",
                dropout=elmo.dropout,
                penalty=elmo.penalty,
            )
    tuned = embedder is not None and elmo.mode == "tuned"
    return TokenInputs(
        words=words,
        chars=spell,
        input_mix=mixes["input"],
        output_mix=mixes["output"],
        elmo_dim=embedder.dim if embedder is not None else 0,
        bilm=learning_bilm(embedder) if tuned and embedder is not None else None,
        word_dropout=config.words.dropout,
    )
