"""AllenNLP's ScalarMix: the same arithmetic as elmo.model.mix, with AllenNLP's parameter names.

`scalar_parameters` is a list of 1-element parameters and `gamma` has one element, so that state dicts,
`mix.scalar_parameters[1].data.fill_(0)` and `mix.scalar_parameters.requires_grad_(False)` work as in AllenNLP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.mix import normalize_batch


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
        values = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(values) != mixture_size:
            raise ConfigError(f"{len(values)} scalar mix parameters were given for {mixture_size} layers.")
        self.mixture_size, self.do_layer_norm = mixture_size, do_layer_norm
        self.scalar_parameters = ScalarParameters(values, trainable)
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """The mix, (B, T, D). With layer norm, `mask` (B, T) selects the positions for a layer's mean and variance."""
        if len(tensors) != self.mixture_size:
            raise ConfigError(f"The mix expects {self.mixture_size} layers; it got {len(tensors)}.")
        weights = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0).to(tensors[0].dtype)  # (L+1,)
        layers = [normalize_batch(layer[None], mask)[0] for layer in tensors] if self.do_layer_norm else tensors
        mixed = weights[0] * layers[0]  # (B, T, D)
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = mixed + weight * layer
        return self.gamma.to(mixed.dtype) * mixed


class ScalarParameters(nn.Module):
    """A list of 1-element parameters; unlike nn.ParameterList, it is not empty on data-parallel replicas."""

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
