"""The choice of layers, from a name, a number or weights: a matrix (K, L+1) with K result vectors per token.

Every choice is linear in the layers, so executors apply it per direction and per chunk. A long document needs memory
for the chosen layers only. "concat" then scales the K vectors of a token to length 1 and joins them; the vectors of a
sentence are pooled before that, layer by layer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elmo.errors import ConfigError
from elmo.model.mix import ScalarMix
from elmo.settings import whole_number

LayerSpec = str | int | Sequence[float] | ScalarMix


@dataclass(frozen=True)
class LayerChoice:
    """Each row of `matrix` (K, L+1), float64, holds the layer weights of one vector; `stacked`: results keep axis K.

    `joined`: the K vectors of a token, each of length 1, are one vector. Its cosine to another is the mean of the K
    cosines, so that each layer counts the same, however long its vectors are.
    """

    matrix: Tensor
    stacked: bool
    joined: bool = False

    def unstack(self, vectors: Tensor) -> Tensor:
        """Removes the axis K of vectors (K, ..., D), unless the choice is stacked; joined vectors are (..., K * D)."""
        if self.joined:
            unit = torch.nn.functional.normalize(vectors, dim=-1)  # zero vectors stay zero
            return unit.movedim(0, -2).flatten(-2)
        return vectors if self.stacked else vectors[0]

    def before_joining(self) -> LayerChoice:
        """The stacked choice of the vectors that a joined choice joins; other choices are unchanged."""
        return LayerChoice(self.matrix, stacked=True) if self.joined else self

    def shape(self, dim: int) -> tuple[int, ...]:
        """The shape of a token's result for layers of width `dim`: (K, D), or (D,), or (K * D,) if it is joined."""
        if self.joined:
            return (len(self.matrix) * dim,)
        return (len(self.matrix), dim) if self.stacked else (dim,)

    def apply(self, layers: Tensor) -> Tensor:
        """The chosen layers (K, B, T, D) of all layers (L+1, B, T, D)."""
        picks = self.matrix.argmax(dim=1)
        one_hot = torch.zeros_like(self.matrix).scatter_(1, picks[:, None], 1.0)
        if torch.equal(one_hot, self.matrix):
            return layers if len(picks) == len(layers) and bool((picks.diff() == 1).all()) else layers[picks]
        return torch.einsum("kl,lbtd->kbtd", self.matrix.to(layers.dtype).to(layers.device), layers)


def choose_layers(layers: LayerSpec, num_layers: int) -> LayerChoice:
    """The choice for "all", "top", "average", "concat", a layer's number, one weight per layer, or a learned mix."""
    if isinstance(layers, ScalarMix):
        return LayerChoice(_mix_row(layers, num_layers)[None], stacked=False)
    number = whole_number(layers)
    if number is not None:
        if not -num_layers <= number < num_layers:
            raise ConfigError(f"layers is {number}; the model has layers 0 to {num_layers - 1}.")
        return LayerChoice(torch.eye(num_layers, dtype=torch.float64)[[number]], stacked=False)
    if isinstance(layers, str):
        return _named(num_layers).get(layers) or choose_layers(_parse(layers, num_layers), num_layers)
    if isinstance(layers, bool) or not isinstance(layers, Iterable):
        raise ConfigError(f"layers is {layers}; expected a layer's name, number, or weights.")
    weights = [float(w) for w in layers]
    if not all(map(math.isfinite, weights)):
        raise ConfigError(f"layer weights are {weights}; expected finite numbers.")
    if len(weights) != num_layers:
        raise ConfigError(f"layers holds {len(weights)} weights; the model has {num_layers} layers.")
    return LayerChoice(torch.tensor([weights], dtype=torch.float64), stacked=False)


@functools.cache  # for the latency of one sentence
def _named(num_layers: int) -> dict[str, LayerChoice]:
    eye = torch.eye(num_layers, dtype=torch.float64)
    return {
        "all": LayerChoice(eye, True),
        "top": LayerChoice(eye[-1:], False),
        "average": LayerChoice(eye.mean(0)[None], False),
        "concat": LayerChoice(eye, False, joined=True),
    }


def _parse(text: str, num_layers: int) -> int | list[float]:
    try:
        return int(text) if text.lstrip("-").isdigit() else [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"layers is {text!r}; expected all, top, average, concat, a number from 0 to {num_layers - 1}, "
            f"or {num_layers} weights separated by commas."
        ) from None


def _mix_row(mix: ScalarMix, num_layers: int) -> Tensor:
    if mix.num_layers != num_layers:
        raise ConfigError(f"The mix is for {mix.num_layers} layers; the model has {num_layers}.")
    if mix.layer_norm != "none":
        raise ConfigError(
            f"A mix with layer_norm={mix.layer_norm!r} is not a weighting of the layers.",
            "Use layers='all' with output='torch' and call the mix on the result.",
        )
    return (mix.gamma * mix.layer_weights()).detach().double().cpu()
