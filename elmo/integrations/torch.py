"""ElmoEmbedding: a biLM with its mix of layers as one module of a PyTorch or Lightning model.

    embedding = elmo.ElmoEmbedding("english", dropout=0.5)
    vectors, mask = embedding([["The", "cat", "sat"], ["Hello"]])  # (B, T, D), (B, T)

The biLM is frozen unless `requires_grad` is set: an `elmo.Embedder` on the module's device computes its layers, with
the kernels and the word cache of that device, and only the mix is trained. The embedder is made at the first call, and
made again after the weights were moved, converted, loaded or changed in place (except through `.data`, which torch does
not count).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmo.embed.embedder import Embedder
from elmo.embed.load import make_indexer, module_parts
from elmo.embed.run.executor import DTYPES
from elmo.embed.trained_layers import trained_layers
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.mix import ScalarMix
from elmo.text.batch import make_batch
from elmo.text.inputs import OneText, Texts, log_warnings, normalize_input, single_word_warning
from elmo.text.tokenizer_function import TokenizerFunction, choose_tokenizer, make_tokenizer
from elmo.weights.model_parts import ModelParts, build

_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items() if name != "int8"}


class ElmoEmbedding(nn.Module):
    """Sentences to vectors (B, T, D) and a mask (B, T), with learned weights of the layers.

    `mix` is an `elmo.ScalarMix`. The state dict has the weights of the biLM (`bilm.*`) and of the mix (`mix.*`). Every
    sentence starts from the zero state. The softmax of the model is not part of the module.
    """

    def __init__(
        self,
        model: str | Path | ModelParts = "default",  # whatever `elmo.load` takes, or a model that is read already
        *,
        requires_grad: bool = False,  # True: the biLM is trained too
        layer_norm: str = "none",  # none, batch, token
        top_only: bool = False,
        fixed: Sequence[float] | None = None,  # weights of the layers before the softmax, which are not trained
        dropout: float = 0.0,
        penalty: float = 0.0,  # lambda of the paper, for `mix.penalty()`
        tokenizer: str | TokenizerFunction | None = None,  # of strings; None: the model's own, or else default
    ) -> None:
        super().__init__()
        parts = module_parts(model)
        self.bilm: BiLM = build(parts).train().requires_grad_(requires_grad)
        self.mix = ScalarMix(
            self.bilm.config.num_layers,
            layer_norm=layer_norm,
            top_only=top_only,
            fixed=fixed,
            dropout=dropout,
            penalty=penalty,
        )
        self.name = parts.source if isinstance(model, ModelParts) else str(model)
        self._indexer = make_indexer(parts)
        self._tokenize = make_tokenizer(choose_tokenizer(parts.tokenizer, tokenizer) or "default")
        self._embedder: Embedder | None = None
        self._embedder_weights: list[tuple[torch.device, torch.dtype, int, int]] = []

    @property
    def dim(self) -> int:
        """Width D of a vector."""
        return self.bilm.config.dim

    @property
    def num_layers(self) -> int:
        """Layers per token: the token layer and one per LSTM layer, L+1."""
        return self.bilm.config.num_layers

    def extra_repr(self) -> str:
        return f"{self.name!r}, dim={self.dim}, num_layers={self.num_layers}"

    def forward(self, sentences: OneText | Texts) -> tuple[Tensor, Tensor]:
        """Vectors (B, T, D), zero at padding, and the mask (B, T), true at tokens; T is the longest sentence's length.

        A list of tokens is a sentence; a string is a sentence that is tokenised. Boundaries are not included.
        """
        layers, mask = self.layers(sentences)
        mixed = self.mix(layers, mask) * mask[:, :, None]  # (B, T, D)
        return mixed, mask

    def layers(self, sentences: OneText | Texts) -> tuple[Tensor, Tensor]:
        """All layers (L+1, B, T, D), zero at padding, and the mask (B, T): the input of more than one mix."""
        inputs = normalize_input(sentences, self._tokenize)
        log_warnings(single_word_warning(inputs))
        tokens = inputs.sentences
        device = self.mix.gamma.device
        lengths = torch.tensor([len(sentence) for sentence in tokens], device=device)  # (B,)
        mask = torch.arange(max(map(len, tokens), default=0), device=device) < lengths[:, None]  # (B, T)
        if not any(tokens):
            return self.mix.gamma.new_zeros(self.num_layers, *mask.shape, self.dim), mask
        is_trained = any(parameter.requires_grad for parameter in self.bilm.parameters())
        if is_trained:
            self._embedder = None  # fused optimizers change weights without counting it
        layers = self._trained_layers(tokens, mask) if is_trained else self._frozen_layers(tokens)
        return layers.to(self.mix.gamma.dtype), mask

    def _trained_layers(self, tokens: Sequence[Sequence[str]], mask: Tensor) -> Tensor:
        batch = make_batch(tokens, self._indexer)
        ids = torch.from_numpy(batch.ids).to(mask.device).long()  # (B, T + 2, W)
        layers = trained_layers(self.bilm, ids)[:, :, 1:-1]  # (L+1, B, T, D)
        return layers * mask[None, :, :, None]  # the end mark of a shorter sentence is not a token

    def _frozen_layers(self, tokens: Sequence[Sequence[str]]) -> Tensor:
        stream = self._current_embedder().stream(tokens, layers="all", output="torch")
        by_token = [layers.transpose(0, 1) for layers in stream]  # (n, L+1, D) each
        return nn.utils.rnn.pad_sequence(by_token, batch_first=True).permute(2, 0, 1, 3)  # (L+1, B, T, D)

    def _current_embedder(self) -> Embedder:
        """The embedder of the present weights."""
        weights = _identity(self.bilm)
        if self._embedder is None or weights != self._embedder_weights:
            kinds = {(device, dtype) for device, dtype, *_ in weights}
            device, dtype = next(iter(kinds))
            if len(kinds) > 1 or dtype not in _DTYPE_NAMES:
                listed = sorted(f"{dtype} on {device}" for device, dtype in kinds)
                raise ConfigError(
                    f"The weights of the biLM are {', '.join(listed)}; "
                    f"expected one device and one of {', '.join(_DTYPE_NAMES.values())}.",
                    "Move the whole module with .to().",
                )
            # the CPU kernels convert the weights that they are given to float32
            bilm = copy.deepcopy(self.bilm) if device.type == "cpu" and dtype != torch.float32 else self.bilm
            name = _DTYPE_NAMES[dtype]
            self._embedder = Embedder(bilm, self._indexer, device=str(device), dtype=name, name=self.name)
            self._embedder_weights = weights
        return self._embedder

    def __getstate__(self) -> dict[str, Any]:
        # a copy, also one in another process, makes an embedder of its own weights
        return {**self.__dict__, "_embedder": None, "_embedder_weights": []}


def _identity(bilm: BiLM) -> list[tuple[torch.device, torch.dtype, int, int]]:
    """What differs after any change of the weights: place, type, memory, and torch's count of changes in place."""
    return [(p.device, p.dtype, p.data_ptr(), p._version) for p in bilm.parameters()]
