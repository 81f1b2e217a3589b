"""AllenNLP's `_ElmoBiLm`: character ids without boundaries to all layers with boundaries, with one LSTM state per row.

It wraps elmo.model.bilm, which is stateless, in the attributes that old code accesses: `elmo._elmo_lstm` is an
`_ElmoBiLm`, and `elmo._elmo_lstm._elmo_lstm` holds its LSTM states.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo.embed.run.plain import token_vectors
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.indexer import ByteIndexer
from elmo.weights import torch_layout
from elmo.weights.catalogue import PUBLISHED_MODELS
from elmo.weights.formats import read_model
from elmo.weights.lookup import find_model
from elmo.weights.model_parts import ModelParts, build
from elmo.weights.names import from_arrays

log = logging.getLogger(__name__)

WORDS_PER_BATCH = 256  # when a vocabulary is cached; bounds the memory of the convolutions


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Character ids of tokenised sentences, (B, T, 50) int64, 0 = padding, without sentence boundaries.

    The tokens <S> and </S> become boundary rows. T is the length of the longest sentence, which may be 0.
    """
    indexer = ByteIndexer(50, specials=True)
    for number, sentence in enumerate([batch] if isinstance(batch, str) else batch):
        if isinstance(sentence, str):
            raise TypeError(f"batch[{number}] is the string {sentence[:40]!r}; expected a sentence, a list of tokens.")
    max_length = max(map(len, batch), default=0)
    ids = np.zeros((len(batch), max_length, indexer.width), dtype=np.int64)  # (B, T, C)
    for row, sentence in enumerate(batch):
        for position, token in enumerate(sentence):
            ids[row, position] = indexer.row(token)
    return torch.from_numpy(ids)


class _ElmoBiLm(nn.Module):
    """Ids (B, T, 50) to a list of layers, each (B, T+2, D), and a mask (B, T+2); boundaries are added here."""

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
            raise ConfigError(f"{parts.source}: the model does not read bytes; AllenNLP's Elmo supports nothing else.")
        self.bilm = build(parts).train().requires_grad_(requires_grad)
        self.num_layers = parts.config.num_layers
        self._requires_grad = requires_grad
        self._indexer = ByteIndexer(chars.max_chars, specials=True)
        self._elmo_lstm = RowStates(parts.config.lstm.num_layers, parts.config.num_directions)
        self._word_embedding: nn.Embedding | None = None
        if vocab_to_cache:
            if requires_grad:
                log.warning(
                    "Fine-tuning trains the cached word vectors and the character network separately, so they diverge."
                )
            self.create_cached_cnn_embeddings(vocab_to_cache)
        add_hook: Callable[..., object] = self.register_load_state_dict_pre_hook  # torch does not annotate it
        add_hook(_convert_allennlp_names)

    def get_output_dim(self) -> int:
        """Width D of a layer."""
        return self.bilm.config.dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        is_cached = self._is_cached(word_inputs)
        tokens, mask = self._cached_token_layer(word_inputs) if is_cached else self._token_layer(inputs)
        state = self._elmo_lstm.start(self.bilm.zero_state(len(tokens)))
        output = self.bilm.contextualize(tokens, mask, state)
        self._elmo_lstm.save(output.state)
        return {"activations": list(output.layers.unbind()), "mask": mask}

    def create_cached_cnn_embeddings(self, tokens: list[str]) -> None:
        """Precomputes the token layer of words; a word's id is its position in the list, and position 0 is padding."""
        table = word_table(self.bilm, self._indexer, tokens)  # (V, P)
        make_embedding: Callable[..., nn.Embedding] = nn.Embedding.from_pretrained
        self._word_embedding = make_embedding(table, freeze=not self._requires_grad, padding_idx=0)

    def _token_layer(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Token vectors (B, T+2, P) and mask (B, T+2); each distinct word is computed once."""
        begin, end = (torch.from_numpy(row).to(ids) for row in (self._indexer.begin, self._indexer.end))
        if ids.shape[-1] != len(begin):
            raise ConfigError(f"ids have {ids.shape[-1]} characters per token; the model reads {len(begin)}.")
        ids, mask = add_boundaries(ids, (ids > 0).any(dim=-1), begin, end)
        return distinct_token_vectors(self.bilm, ids), mask

    def _cached_token_layer(self, word_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        assert self._word_embedding is not None
        assert word_ids is not None
        rows = np.stack([self._indexer.begin, self._indexer.end])  # (2, C)
        begin, end = token_vectors(self.bilm, torch.from_numpy(rows).to(word_ids.device))  # each (P,)
        return add_boundaries(self._word_embedding(word_ids), word_ids > 0, begin, end)

    def _is_cached(self, word_ids: Tensor | None) -> bool:
        if self._word_embedding is None or word_ids is None:
            return False
        return bool(((word_ids >= 0) & (word_ids < self._word_embedding.num_embeddings)).all())


class RowStates(nn.Module):
    """The final LSTM state of each batch row; it has no parameters and is not part of a state dict.

    `_states` is None or h (L, B, 2P) and c (L, B, 2H), forward then backward in the last axis, as in AllenNLP. Rows
    beyond the current batch are not changed, nor is a row without any token or boundary.
    """

    def __init__(self, num_layers: int, num_directions: int) -> None:
        super().__init__()
        self.stateful = True
        self.num_layers, self.num_directions = num_layers, num_directions
        self._states: tuple[Tensor, Tensor] | None = (
            None  # not a buffer, because DDP would copy one process's states to all
        )

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Resets every row, or the rows where `mask` (B,) is true; rows beyond the mask are not changed."""
        if mask is None or self._states is None:
            self._states = None
            return
        reset = torch.zeros(self._states[0].shape[1], dtype=torch.bool, device=self._states[0].device)  # (B,)
        mask = mask.to(reset)[: len(reset)]
        reset[: len(mask)] = mask
        h, c = (torch.where(reset[None, :, None], 0.0, state) for state in self._states)
        self._states = (h, c)

    def start(self, zero_state: State) -> State:
        """The initial state of a batch: `zero_state` (R directions, L, B, ·), overwritten with the saved rows."""
        if not self.stateful or self._states is None:
            return zero_state
        num_rows = min(zero_state.h.shape[2], self._states[0].shape[1])
        for new, old in zip(zero_state, self._states, strict=True):
            new[:, :, :num_rows] = torch.stack(old[:, :num_rows].to(new).chunk(self.num_directions, dim=-1))
        return zero_state

    def save(self, final: State) -> None:
        """Saves the final state of a batch's rows, without gradients."""
        if not self.stateful:
            return
        h, c = (torch.cat(part.detach().unbind(), dim=-1) for part in final)  # (L, B, 2P), (L, B, 2H)
        if self._states is not None:
            B = h.shape[1]
            h, c = (torch.cat([new, old[:, B:].to(new)], 1) for new, old in zip((h, c), self._states, strict=True))
        self._states = (h, c)


def word_table(bilm: BiLM, indexer: ByteIndexer, words: Sequence[str]) -> Tensor:
    """The token vectors of a list of words, (V, P), on the model's device and without gradients."""
    parameter = next(bilm.parameters())
    table = parameter.new_zeros(len(words), bilm.config.lstm.proj_dim)  # (V, P)
    with torch.no_grad():
        for start in range(0, len(words), WORDS_PER_BATCH):
            rows = torch.from_numpy(indexer.rows(words[start : start + WORDS_PER_BATCH])).to(parameter.device)
            table[start : start + len(rows)] = token_vectors(bilm, rows)
    return table


def distinct_token_vectors(bilm: BiLM, ids: Tensor) -> Tensor:
    """Token vectors (B, T, P) of ids (B, T, C); each distinct word is computed once."""
    words, inverse = torch.unique(ids.flatten(0, 1), dim=0, return_inverse=True)  # (N, C), (B*T,)
    vectors: Tensor = token_vectors(bilm, words)[inverse].unflatten(0, ids.shape[:2])  # (B, T, P)
    return vectors


def add_boundaries(rows: Tensor, mask: Tensor, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (B, T, ·) with boundary rows around each sentence, (B, T+2, ·), and the mask (B, T+2).

    A sentence without tokens becomes the two boundaries, as in AllenNLP, and so changes the state of its row.
    """
    B, T, width = rows.shape
    lengths = mask.sum(dim=1)  # (B,)
    wrapped = rows.new_zeros(B, T + 2, width)  # (B, T+2, ·)
    wrapped[:, 1:-1] = rows
    wrapped[:, 0] = begin
    wrapped[torch.arange(B, device=rows.device), lengths + 1] = end
    return wrapped, torch.arange(T + 2, device=rows.device) < lengths[:, None] + 2


def read_parts(options_file: str | Path | None, weight_file: str | Path | None) -> ModelParts:
    """A stored model without its softmax: from its files, by a name as in `elmo.load`, or by the URL of its files.

    Without any file it is the published model "original", as in AllenNLP.
    """
    files = [str(file) for file in (weight_file, options_file) if file is not None]
    if not files or any("://" in file for file in files):
        parts = find_model(_name_of_url(files) if files else "original")
    elif options_file is None or weight_file is None:
        parts = find_model(files[0])
    else:
        parts = read_model(options_file, weight_file)
    tensors = {name: tensor for name, tensor in parts.tensors.items() if not name.startswith("head.")}
    return dataclasses.replace(parts, config=dataclasses.replace(parts.config, head=None), tensors=tensors)


def _name_of_url(urls: list[str]) -> str:
    """The published model that has a file with the same folder and name as one of the URLs, on any server."""
    for url in urls:
        for model in PUBLISHED_MODELS.values():
            if any(file.url.split("?")[0].split("/")[-2:] == url.split("?")[0].split("/")[-2:] for file in model.files):
                return model.name
    raise WeightsError(f"{urls[0]} is not the URL of a known model.", "Download both files and pass their paths.")


def _convert_allennlp_names(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Converts the biLM in a state dict from AllenNLP's names and layout to ours, before it is loaded.

    Does nothing if the state dict has no AllenNLP names.
    """
    assert isinstance(module, _ElmoBiLm)
    prefixes = (f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm.")
    allennlp_state = {key: tensor for key, tensor in state.items() if key.startswith(prefixes)}
    if not allennlp_state:
        return
    arrays = torch_layout.TrackedArrays(
        {key: tensor.detach().float().cpu().numpy() for key, tensor in allennlp_state.items()}
    )
    config, source = module.bilm.config, "the state dict"
    published = torch_layout.allennlp_bilm(arrays, prefix, source)
    forget = slice(2 * config.lstm.cell_dim, 3 * config.lstm.cell_dim)
    for name, tensor in from_arrays(config, published, source).items():
        if name.startswith("stacks.") and name.endswith(".bias"):
            tensor[forget] -= config.lstm.forget_bias  # AllenNLP's biases include it; our network adds it at run time
        state[f"{prefix}bilm.{name}"] = tensor
    # what was not read stays, and torch reports it as unexpected
    for key in set(allennlp_state) - arrays.unread() | {prefix + name for name in torch_layout.NOT_WEIGHTS[:2]}:
        state.pop(key, None)
