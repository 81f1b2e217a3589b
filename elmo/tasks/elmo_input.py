"""The input of a task model: word vectors, characters and ELMo; and ELMo again at the output of its encoder.

It converts a TokenBatch to the vectors that every task's network reads (paper section 3.3). A frozen biLM's layers are
part of the batch; a tuned biLM is part of this module and is trained with the task. Input and output have separate
mixes over the same layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from elmo.embed.embedder import Embedder
from elmo.embed.trained_layers import trained_layers
from elmo.model.bilm import BiLM
from elmo.model.mix import ScalarMix
from elmo.tasks.config import RunConfig
from elmo.tasks.token_batch import TokenBatch
from elmo.tasks.word_vocabulary import NUM_CHARS


@dataclass(frozen=True)
class Embedded:
    """The input of the encoder: vectors (B, T, dim), mask (B, T), and layers (L+1, B, T, D) for its output, or None."""

    vectors: Tensor
    mask: Tensor
    layers: Tensor | None


class TokenInputs(nn.Module):
    """Concatenates the inputs that the settings enable; `dim` is their width, `output_dim` what `at_output` adds."""

    def __init__(
        self,
        *,
        words: nn.Embedding | None = None,
        chars: CharCNN | None = None,
        input_mix: ScalarMix | None = None,
        output_mix: ScalarMix | None = None,
        elmo_dim: int = 0,
        bilm: BiLM | None = None,  # a tuned biLM; None: the layers are in the batch
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
        """The vectors of the tokens; vectors of padding are zero."""
        inputs = []
        if self.words is not None:
            inputs.append(self.word_dropout(self.words(tokens.word_ids)))  # (B, T, word dim)
        if self.chars is not None:
            assert tokens.char_ids is not None
            assert tokens.char_rows is not None
            features = self.chars(tokens.char_ids).float()  # (U, F); a word's gradients are summed in this type
            inputs.append(nn.functional.embedding(tokens.char_rows, features))  # (B, T, F)
        layers = self._layers(tokens)
        if self.input_mix is not None:
            assert layers is not None
            inputs.append(self.input_mix(layers, tokens.mask))  # (B, T, D)
        vectors = torch.cat([vector.float() for vector in inputs], dim=-1)  # (B, T, dim)
        return Embedded(vectors * tokens.mask[:, :, None], tokens.mask, layers if self.output_mix is not None else None)

    def at_output(self, encoded: Tensor, embedded: Embedded) -> Tensor:
        """[encoded; ELMo] (B, T, H + output_dim) with the output mix; without an output mix `encoded` itself."""
        if self.output_mix is None:
            return encoded
        assert embedded.layers is not None
        mixed = self.output_mix(embedded.layers, embedded.mask) * embedded.mask[:, :, None]  # (B, T, D)
        return torch.cat([encoded, mixed.to(encoded.dtype)], dim=-1)

    def penalty(self) -> Tensor | float:
        """The regularisation term of the mixes, lambda * ||w||^2, for the loss."""
        return sum((mix.penalty() for mix in (self.input_mix, self.output_mix) if mix is not None), start=0.0)

    def mixes(self) -> dict[str, dict[str, object]]:
        """The softmax-normalised weights and gamma of each mix, for the record (paper Figure 2)."""
        mixes = {"input": self.input_mix, "output": self.output_mix}
        return {
            place: {"weights": mix.layer_weights().tolist(), "gamma": mix.gamma.item()}
            for place, mix in mixes.items()
            if mix is not None
        }

    def _layers(self, tokens: TokenBatch) -> Tensor | None:
        if self.bilm is None:
            return None if tokens.layers is None else tokens.layers.float()
        assert tokens.bilm_char_ids is not None
        layers = trained_layers(self.bilm, tokens.bilm_char_ids.long())[:, :, 1:-1]  # (L+1, B, T, D)
        return layers * tokens.mask[None, :, :, None]  # the end mark of a shorter sentence is not a token


def trainable_bilm(embedder: Embedder) -> BiLM:
    """The embedder's network with gradients enabled, without its softmax head, which gets no gradient from a task."""
    embedder.model.head = None
    return embedder.model.requires_grad_(True)


def make_inputs(config: RunConfig, word_vectors: np.ndarray | None, embedder: Embedder | None) -> TokenInputs:
    """The input module of a model. `word_vectors` (V, dim) initialise the word embedding; None: no word embedding."""
    words = None
    if word_vectors is not None:
        embedding: Callable[..., nn.Embedding] = nn.Embedding.from_pretrained
        words = embedding(torch.from_numpy(word_vectors), freeze=not config.words.tuned, padding_idx=0)
    chars = config.chars
    char_cnn = CharCNN(chars.dim, chars.num_filters, chars.width, chars.dropout) if chars.num_filters else None
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
    is_tuned = embedder is not None and elmo.mode == "tuned"
    return TokenInputs(
        words=words,
        chars=char_cnn,
        input_mix=mixes["input"],
        output_mix=mixes["output"],
        elmo_dim=embedder.dim if embedder is not None else 0,
        bilm=trainable_bilm(embedder) if is_tuned and embedder is not None else None,
        word_dropout=config.words.dropout,
    )


class CharCNN(nn.Module):
    """Character ids of words (U, C), 0 = padding, to (U, F). Windows of padding are excluded from the maximum."""

    def __init__(self, char_dim: int, num_filters: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim, self.width = num_filters, width
        self.embed = nn.Embedding(NUM_CHARS, char_dim, padding_idx=0)
        self.convolve = nn.Conv1d(char_dim, num_filters, width, padding=width - 1)  # so that every word has a window
        self.dropout = nn.Dropout(dropout)

    def forward(self, char_ids: Tensor) -> Tensor:
        vectors = self.dropout(self.embed(char_ids)).transpose(1, 2)  # (U, E, C)
        windows = self.convolve(vectors)  # (U, F, C + width - 1)
        # the last windows of a short word contain only padding; they are masked out
        length = (char_ids != 0).sum(dim=1, keepdim=True)  # (U, 1)
        window_number = windows.new_ones(windows.shape[-1]).cumsum(0)[None]  # (1, C + width - 1), from 1
        has_character = window_number <= length + self.width - 1  # (U, C + width - 1)
        pooled = windows.masked_fill(~has_character[:, None], float("-inf")).amax(dim=-1)  # (U, F)
        return nn.functional.relu(pooled)
