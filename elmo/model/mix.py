"""The task-specific mix of a biLM's layers: gamma * sum of s_j * layer_j (paper equation 1).

It connects the biLM to a task model. A task that uses ELMo at its input and its output has two mixes over one run of
the biLM. Mixes of the same shape start with equal weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError

LAYER_NORMS = ("none", "batch", "token")


class ScalarMix(nn.Module):
    """Layers (L+1, B, T, D) to one vector per token (B, T, D), with learned softmax weights and a learned scale.

    layer_norm "batch" normalises each layer by one mean and variance over all tokens of the batch, as published: a
    vector then depends on the other tokens. "token" normalises the vector of each token separately.
    `fixed` weights (before the softmax) are not trained; `top_only` uses the last layer and gamma only.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        layer_norm: str = "none",  # none, batch, token
        top_only: bool = False,
        fixed: Sequence[float] | None = None,
        dropout: float = 0.0,
        penalty: float = 0.0,  # lambda of the paper: pulls the weights towards a uniform average
    ) -> None:
        super().__init__()
        if layer_norm not in LAYER_NORMS:
            raise ConfigError(f"layer_norm is {layer_norm!r}; expected one of {', '.join(LAYER_NORMS)}.")
        if fixed is not None and len(fixed) != num_layers:
            raise ConfigError(f"There are {len(fixed)} fixed weights for {num_layers} layers; expected one per layer.")
        if fixed is not None and not torch.tensor(fixed, dtype=torch.float32, device="cpu").softmax(0).isfinite().all():
            # -inf beside finite weights leaves its layer out
            raise ConfigError(f"fixed is {list(fixed)}; expected numbers that are not NaN or inf, at least one finite.")
        if fixed is not None and top_only:
            raise ConfigError("top_only uses no weights, and fixed gives some.", "Leave one of them out.")
        if not 0 <= dropout <= 1 or not 0 <= penalty < math.inf:
            raise ConfigError(f"dropout is {dropout} and penalty {penalty}; expected 0 to 1, and 0 or more.")
        self.num_layers, self.layer_norm, self.top_only = num_layers, layer_norm, top_only
        self.dropout, self.penalty_weight = dropout, penalty
        initial = torch.zeros(num_layers) if fixed is None else torch.tensor(fixed, dtype=torch.float32)
        # one tensor and not a ParameterList, which is empty on data-parallel replicas
        self.weights = None if top_only else nn.Parameter(initial, requires_grad=fixed is None)
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """The mix (B, T, D) of layers in one tensor (L+1, B, T, D), or in a list of tensors (B, T, D)."""
        _check_tensors(layers)
        if len(layers) != self.num_layers:
            raise ConfigError(f"The mix is for {self.num_layers} layers and got {len(layers)}.")
        if not isinstance(layers, Tensor):
            layers = _stacked(layers)
        if self.top_only:
            mixed = self._normalized(layers[-1:], mask)[0]  # (B, T, D)
        else:
            mixed = torch.einsum("l,lbtd->btd", self.layer_weights().to(layers.dtype), self._normalized(layers, mask))
        return nn.functional.dropout(self.gamma.to(layers.dtype) * mixed, self.dropout, self.training)

    def layer_weights(self) -> Tensor:
        """The weight of each layer after the softmax, (L+1,)."""
        if self.weights is None:
            return torch.eye(self.num_layers, device=self.gamma.device)[-1]
        return torch.softmax(self.weights, dim=0)

    def penalty(self) -> Tensor:
        """lambda * ||w||^2, a term of the task's loss; zero if there are no weights."""
        if self.weights is None or not self.penalty_weight:
            return self.gamma.new_zeros(())
        return self.penalty_weight * (self.weights**2).sum()

    def _normalized(self, layers: Tensor, mask: Tensor | None) -> Tensor:
        if self.layer_norm == "none":
            return layers
        if self.layer_norm == "token":
            return nn.functional.layer_norm(layers, layers.shape[-1:])
        return normalize_batch(layers, mask)


def normalize_batch(layers: Tensor, mask: Tensor | None) -> Tensor:
    """Each layer normalised by one mean and one variance over all unmasked positions and features of the batch."""
    dtype, layers = layers.dtype, layers.to(torch.promote_types(layers.dtype, torch.float32))  # float16 overflows
    valid = torch.ones_like(layers[0, ..., :1]) if mask is None else mask[..., None].to(layers.dtype)  # (B, T, 1)
    count = (valid.sum() * layers.shape[-1]).clamp(min=1)  # no division by zero if the mask is all false
    dims = tuple(range(1, layers.dim()))
    mean = (layers * valid).sum(dim=dims, keepdim=True) / count  # (L+1, 1, 1, 1)
    variance = (((layers - mean) * valid) ** 2).sum(dim=dims, keepdim=True) / count
    return ((layers - mean) / torch.sqrt(variance + 1e-12)).to(dtype)


def _check_tensors(layers: Tensor | Sequence[Tensor]) -> None:
    for item in layers if isinstance(layers, (list, tuple)) else [layers]:
        if not isinstance(item, Tensor):
            raise TypeError(
                f"The mix got a {type(item).__name__}; expected a tensor (L+1, B, T, D) or a list of tensors "
                '(B, T, D). Embedder.layers(..., output="torch") gives tensors.'
            )


def _stacked(layers: Sequence[Tensor]) -> Tensor:
    """A list of layers (B, T, D) as one tensor (L+1, B, T, D)."""
    shapes = [tuple(layer.shape) for layer in layers]
    if len({*shapes}) > 1:
        shown = ", ".join(map(str, shapes))
        raise ConfigError(f"The mix got a list of tensors with the shapes {shown}; expected layers of equal shape.")
    return torch.stack(list(layers))
