"""AllenNLP's ScalarMix: the same arithmetic as elmo.model.mix, with the parameters old code reaches for.

Stands between the biLM and a task model. `scalar_parameters` is a list of 1-element parameters and `gamma` has one
element, so state dicts, `mix.scalar_parameters[1].data.fill_(0)` and `mix.scalar_parameters.requires_grad_(False)` work
as they did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError


class ScalarMix(nn.Module):
    """gamma * sum of softmax(w)_k * layer_k for a list of layers (B, T, D)."""

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,  # before the softmax
        trainable: bool = True,
    ) -> None:
        super().__init__()
        start = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(start) != mixture_size:
            raise ConfigError(f"{len(start)} scalar mix parameters were given for {mixture_size} layers.")
        self.mixture_size, self.do_layer_norm = mixture_size, do_layer_norm
        self.scalar_parameters = ScalarParameters(start, trainable)
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """With layer norm, `mask` (B, T) says which positions a layer's mean and variance are over."""
        if len(tensors) != self.mixture_size:
            raise ConfigError(f"The mix is for {self.mixture_size} layers and got {len(tensors)}.")
        shares = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0).to(tensors[0].dtype)  # (L+1,)
        layers = [_normalized(layer, mask) for layer in tensors] if self.do_layer_norm else tensors
        mixed = shares[0] * layers[0]  # (B, T, D)
        for share, layer in zip(shares[1:], layers[1:], strict=True):
            mixed = mixed + share * layer
        return self.gamma.to(mixed.dtype) * mixed


class ScalarParameters(nn.Module):
    """A list of 1-element parameters; unlike nn.ParameterList it is not empty on data-parallel replicas."""

    def __init__(self, values: Sequence[float], trainable: bool) -> None:
        super().__init__()
        self._size = len(values)
        for number, value in enumerate(values):
            parameter = nn.Parameter(torch.tensor([value], dtype=torch.float32), requires_grad=trainable)
            self.register_parameter(str(number), parameter)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Tensor]:
        return (getattr(self, str(number)) for number in range(self._size))


def _normalized(layer: Tensor, mask: Tensor | None) -> Tensor:
    """The layer with one mean and one variance over all unmasked positions and features of the batch taken out."""
    inside = torch.ones_like(layer[..., :1]) if mask is None else mask[..., None].to(layer.dtype)  # (B, T, 1)
    count = (inside.sum() * layer.shape[-1]).clamp(min=1)
    mean = (layer * inside).sum() / count
    variance = (((layer - mean) * inside) ** 2).sum() / count
    return (layer - mean) / torch.sqrt(variance + 1e-12)
