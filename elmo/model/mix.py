"""The task's own mix of a biLM's layers: gamma * sum of s_j * layer_j (paper equation 1).

Stands between the biLM and a task model. A task that wants ELMo at its input and its output takes two mixes over one
pass of the biLM. Mixes of the same shape start out equal and part as they learn.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError

LAYER_NORMS = ("none", "batch", "token")


class ScalarMix(nn.Module):
    """Layers (L+1, B, T, D) to one vector a token (B, T, D), with learned softmax weights and scale.

    layer_norm "batch" normalises each layer by one mean and variance over the whole batch's tokens, as published: a
    vector then depends on its neighbours. "token" normalises each token's vector alone, the saner choice.
    `fixed` weights (before the softmax) do not learn; `top_only` keeps the last layer and gamma.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        layer_norm: str = "none",  # none, batch, token
        top_only: bool = False,
        fixed: Sequence[float] | None = None,
        dropout: float = 0.0,
        penalty: float = 0.0,  # lambda of the paper: pulls the weights towards a plain average
    ) -> None:
        super().__init__()
        if layer_norm not in LAYER_NORMS:
            raise ConfigError(f"layer_norm is {layer_norm!r}; expected one of {', '.join(LAYER_NORMS)}.")
        if fixed is not None and len(fixed) != num_layers:
            raise ConfigError(f"{len(fixed)} fixed weights were given for {num_layers} layers.")
        if not 0 <= dropout <= 1 or penalty < 0:
            raise ConfigError(f"dropout is {dropout} and penalty {penalty}; expected 0 to 1, and 0 or more.")
        self.num_layers, self.layer_norm, self.top_only = num_layers, layer_norm, top_only
        self.dropout, self.penalty_weight = dropout, penalty
        start = torch.zeros(num_layers) if fixed is None else torch.tensor(fixed, dtype=torch.float32)
        # plain tensors, never a ParameterList: those come up empty on data-parallel replicas
        self.weights = None if top_only else nn.Parameter(start, requires_grad=fixed is None)
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor, mask: Tensor | None = None) -> Tensor:
        if len(layers) != self.num_layers:
            raise ConfigError(f"The mix is for {self.num_layers} layers and got {len(layers)}.")
        if self.top_only:
            mixed = self._normalized(layers[-1:], mask)[0]  # (B, T, D)
        else:
            mixed = torch.einsum("l,lbtd->btd", self.layer_weights().to(layers.dtype), self._normalized(layers, mask))
        return nn.functional.dropout(self.gamma.to(layers.dtype) * mixed, self.dropout, self.training)

    def layer_weights(self) -> Tensor:
        """The softmax-normalised share of each layer, (L+1,)."""
        if self.weights is None:
            return torch.eye(self.num_layers, device=self.gamma.device)[-1]
        return torch.softmax(self.weights, dim=0)

    def penalty(self) -> Tensor:
        """lambda * ||w||^2, to add to the task's loss; zero where nothing is learned."""
        if self.weights is None or not self.penalty_weight:
            return self.gamma.new_zeros(())
        return self.penalty_weight * (self.weights**2).sum()

    def _normalized(self, layers: Tensor, mask: Tensor | None) -> Tensor:
        if self.layer_norm == "none":
            return layers
        if self.layer_norm == "token":
            return nn.functional.layer_norm(layers, layers.shape[-1:])
        inside = torch.ones_like(layers[0, ..., :1]) if mask is None else mask[..., None].to(layers.dtype)  # (B, T, 1)
        count = (inside.sum() * layers.shape[-1]).clamp(min=1)  # an all-masked batch must not divide by zero
        dims = tuple(range(1, layers.dim()))
        mean = (layers * inside).sum(dim=dims, keepdim=True) / count  # (L+1, 1, 1, 1)
        variance = (((layers - mean) * inside) ** 2).sum(dim=dims, keepdim=True) / count
        return (layers - mean) / torch.sqrt(variance + 1e-12)
