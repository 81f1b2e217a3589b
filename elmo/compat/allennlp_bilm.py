"""The biLM inside AllenNLP's Elmo: character ids without boundaries to all layers with them, remembering each row.

Wraps elmo.model.bilm, which keeps no state, in the module old code pokes at: `elmo._elmo_lstm` is one of these, and
`elmo._elmo_lstm._elmo_lstm` its memory.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo.embed.run.plain import token_vectors
from elmo.errors import ConfigError, WeightsError
from elmo.model.lstm import State
from elmo.text.indexer import ByteIndexer
from elmo.weights import torch_layout
from elmo.weights.catalogue import KNOWN
from elmo.weights.formats import read_model
from elmo.weights.lookup import find_model
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.names import from_arrays

log = logging.getLogger(__name__)

WORDS_AT_ONCE = 256  # of a cached vocabulary; bounds the convolutions' memory


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Character ids of tokenised sentences, (B, T, 50) int64, 0 = padding, without sentence boundaries.

    The tokens <S> and </S> become the boundaries' own rows. T is the longest sentence's length, which may be 0.
    """
    indexer = ByteIndexer(50, specials=True)
    for number, sentence in enumerate([batch] if isinstance(batch, str) else batch):
        if isinstance(sentence, str):
            raise TypeError(f"batch[{number}] is the string {sentence[:40]!r}; expected a sentence, a list of tokens.")
    longest = max(map(len, batch), default=0)
    ids = np.zeros((len(batch), longest, indexer.width), dtype=np.int64)  # (B, T, C)
    for row, sentence in enumerate(batch):
        for place, token in enumerate(sentence):
            ids[row, place] = indexer.row(token)
    return torch.from_numpy(ids)


class _ElmoBiLm(nn.Module):
    """Ids (B, T, 50) to a list of layers, each (B, T+2, D), and a mask (B, T+2): boundaries are added here."""

    def __init__(
        self,
        options_file: str | None,
        weight_file: str | None,
        requires_grad: bool = False,
        vocab_to_cache: list[str] | None = None,
    ) -> None:
        super().__init__()
        parts = read_parts(options_file, weight_file)
        chars = parts.config.chars
        if chars is None or parts.lexicon is not None or parts.config.words is not None:
            raise ConfigError(f"{parts.source}: the model does not read bytes; AllenNLP's Elmo reads nothing else.")
        self.bilm = build(parts).train().requires_grad_(requires_grad)
        self.num_layers = parts.config.num_layers
        self._requires_grad = requires_grad
        self._indexer = ByteIndexer(chars.max_chars, specials=True)
        self._elmo_lstm = RowMemory(parts.config.lstm.num_layers, parts.config.num_directions)
        self._word_embedding: nn.Embedding | None = None
        if vocab_to_cache:
            if requires_grad:
                log.warning("The cached words' vectors and the character network will part ways in fine-tuning.")
            self.create_cached_cnn_embeddings(vocab_to_cache)
        self.register_load_state_dict_pre_hook(_take_allennlp_names)

    def get_output_dim(self) -> int:
        """Width D of a layer."""
        return self.bilm.config.dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        tokens, mask = self._cached(word_inputs) if self._is_cached(word_inputs) else self._token_layer(inputs)
        state = self._elmo_lstm.start(self.bilm.zero_state(len(tokens)))
        output = self.bilm.contextualize(tokens, mask, state)
        self._elmo_lstm.keep(output.state)
        return {"activations": list(output.layers.unbind()), "mask": mask}

    def create_cached_cnn_embeddings(self, tokens: list[str]) -> None:
        """Computes the token layer of these words once; a word's id is its position, and position 0 is padding."""
        like = next(self.bilm.parameters())
        table = like.new_zeros(len(tokens), self.bilm.config.lstm.proj_dim)  # (V, P)
        with torch.no_grad():
            for start in range(0, len(tokens), WORDS_AT_ONCE):
                rows = np.stack([self._indexer.row(token) for token in tokens[start : start + WORDS_AT_ONCE]])
                table[start : start + len(rows)] = token_vectors(self.bilm, torch.from_numpy(rows).to(like.device))
        self._word_embedding = nn.Embedding.from_pretrained(table, freeze=not self._requires_grad, padding_idx=0)

    def _token_layer(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Token vectors (B, T+2, P) and mask (B, T+2); each distinct word goes through the network once."""
        begin, end = (torch.from_numpy(row).to(ids) for row in (self._indexer.begin, self._indexer.end))
        if ids.shape[-1] != len(begin):
            raise ConfigError(f"ids have {ids.shape[-1]} characters a token; the model reads {len(begin)}.")
        ids, mask = add_boundaries(ids, (ids > 0).any(dim=-1), begin, end)
        words, where = torch.unique(ids.flatten(0, 1), dim=0, return_inverse=True)  # (N, C), (B*(T+2),)
        return token_vectors(self.bilm, words)[where].unflatten(0, mask.shape), mask

    def _cached(self, word_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        assert self._word_embedding is not None
        assert word_ids is not None
        rows = np.stack([self._indexer.begin, self._indexer.end])  # (2, C)
        begin, end = token_vectors(self.bilm, torch.from_numpy(rows).to(word_ids.device))  # each (P,)
        return add_boundaries(self._word_embedding(word_ids), word_ids > 0, begin, end)

    def _is_cached(self, word_ids: Tensor | None) -> bool:
        if self._word_embedding is None or word_ids is None:
            return False
        return bool(((word_ids >= 0) & (word_ids < self._word_embedding.num_embeddings)).all())


class RowMemory(nn.Module):
    """What each batch row's last sentence left behind; no parameters, and no part of a state dict.

    `_states` is None or h (L, B, 2P) and c (L, B, 2H), forward then backward in the last axis, as AllenNLP had them.
    Rows beyond a batch keep theirs, and so does a row without any token or boundary.
    """

    def __init__(self, num_layers: int, num_directions: int) -> None:
        super().__init__()
        self.stateful = True
        self.num_layers, self.num_directions = num_layers, num_directions
        self._states: tuple[Tensor, Tensor] | None = None  # no buffer: DDP would spread one process's memory to all

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forgets every row, or the rows where `mask` (B,) is true; rows beyond the mask stay."""
        if mask is None or self._states is None:
            self._states = None
            return
        forget = torch.zeros(self._states[0].shape[1], dtype=torch.bool, device=self._states[0].device)  # (B,)
        given = mask.to(forget)[: len(forget)]
        forget[: len(given)] = given
        h, c = (torch.where(forget[None, :, None], 0.0, state) for state in self._states)
        self._states = (h, c)

    def start(self, fresh: State) -> State:
        """The state a batch begins with: `fresh` (directions, L, B, ·) with the remembered rows in it."""
        if not self.stateful or self._states is None:
            return fresh
        rows = min(fresh.h.shape[2], self._states[0].shape[1])
        for new, old in zip(fresh, self._states, strict=True):
            new[:, :, :rows] = torch.stack(old[:, :rows].to(new).chunk(self.num_directions, dim=-1))
        return fresh

    def keep(self, after: State) -> None:
        """Remembers a batch's rows, without their gradients."""
        if not self.stateful:
            return
        h, c = (torch.cat(part.detach().unbind(), dim=-1) for part in after)  # (L, B, 2P), (L, B, 2H)
        if self._states is not None:
            rows = h.shape[1]
            h, c = (torch.cat([new, old[:, rows:].to(new)], 1) for new, old in zip((h, c), self._states, strict=True))
        self._states = (h, c)


def add_boundaries(rows: Tensor, mask: Tensor, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (B, T, ·) with the boundary rows around each sentence, (B, T+2, ·), and their mask.

    A sentence without tokens becomes the two boundaries, as in AllenNLP, and so moves its row's memory.
    """
    B, T, width = rows.shape
    lengths = mask.sum(dim=1)  # (B,)
    wrapped = rows.new_zeros(B, T + 2, width)  # (B, T+2, ·)
    wrapped[:, 1:-1] = rows
    wrapped[:, 0] = begin
    wrapped[torch.arange(B, device=rows.device), lengths + 1] = end
    return wrapped, torch.arange(T + 2, device=rows.device) < lengths[:, None] + 2


def read_parts(options_file: str | Path | None, weight_file: str | Path | None) -> ModelParts:
    """A stored model without its softmax: from its files, or a published one by the address it used to have.

    Without any file it is the published model "original", as it was with AllenNLP.
    """
    given = [str(file) for file in (weight_file, options_file) if file is not None]
    if not given or any("://" in file for file in given):
        parts = find_model(_published_name(given) if given else "original")
    elif options_file is None or weight_file is None:
        parts = read_model(given[0])
    else:
        parts = read_model(options_file, weight_file)
    tensors = {name: tensor for name, tensor in parts.tensors.items() if not name.startswith("head.")}
    return dataclasses.replace(parts, config=dataclasses.replace(parts.config, head=None), tensors=tensors)


def _published_name(addresses: list[str]) -> str:
    """The known model one of whose files has the folder and name an address ends in, whatever the server."""
    for address in addresses:
        for model in KNOWN.values():
            if any(file.url.split("/")[-2:] == address.split("?")[0].split("/")[-2:] for file in model.files):
                return model.name
    raise WeightsError(f"{addresses[0]} is no known model's address.", "Download both files and pass their paths.")


def _take_allennlp_names(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Before a state dict is loaded: AllenNLP's names and layout of the biLM, if it has them, become ours."""
    assert isinstance(module, _ElmoBiLm)
    theirs = {key: state[key] for key in state if key.startswith((f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm."))}
    if not theirs:
        return
    arrays = {key: tensor.detach().float().cpu().numpy() for key, tensor in theirs.items()}
    config, name = module.bilm.config, "the state dict"
    assert config.chars is not None
    encoder = f"{prefix}_token_embedder."
    chars = torch_layout.take(arrays, f"{encoder}_char_embedding_weights", name, (None, config.chars.char_dim))
    published = {"char_embed": chars[1:]}  # without the padding row
    conv, highway = f"{encoder}char_conv_", f"{encoder}_highways._layers."
    published |= torch_layout.char_cnn(arrays, conv, highway, config.chars.char_dim, name)
    published |= torch_layout.projection(arrays, f"{encoder}_projection", config.chars.num_filters, name)
    published |= torch_layout.lstm(arrays, f"{prefix}_elmo_lstm.", config.lstm.proj_dim, name)
    forget = slice(2 * config.lstm.cell_dim, 3 * config.lstm.cell_dim)
    for key, tensor in from_arrays(config, published, name).items():
        if key.startswith("stacks.") and key.endswith(".bias"):
            tensor[forget] -= config.lstm.forget_bias  # AllenNLP's biases contain what the network here adds as it runs
        state[f"{prefix}bilm.{key}"] = tensor
    for key in theirs:
        del state[key]
