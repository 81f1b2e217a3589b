"""Both directions over rows of running text at once, for training: each reads text of its own, left to right.

On CUDA a fused twin does the work; elsewhere, and with ELMO_KERNELS=off, the plain stacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from elmo.kernels.api import find_kernel
from elmo.model.lstm import LSTMStack, ProjectedLSTM, State


def run_stacks(
    stacks: nn.ModuleList, x: Tensor, state: State, fresh: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, State]:
    """Top outputs (D, B, T, P) of token vectors x (D, B, T, P), and the states after the last step.

    `state` is h (D, L, B, P), c (D, L, B, H); `fresh` (D, B, T) is true where a row forgets before a step.
    """
    bilstm = find_kernel("bilstm", x.device.type, str(x.dtype).removeprefix("torch."))
    projects = any(name.endswith("projection") for name, _ in stacks.named_parameters())
    if bilstm is None or not projects:
        return run_stacks_plain(stacks, x, state, fresh, dropout)
    return run_stacks_fused(bilstm, stacks, x, state, fresh, dropout)


def run_stacks_plain(
    stacks: nn.ModuleList, x: Tensor, state: State, fresh: Tensor | None, dropout: float
) -> tuple[Tensor, State]:
    """One stack after the other."""
    tops, states = [], []
    for d, stack in enumerate(stacks):
        begins = None if fresh is None else fresh[d]
        layers, after = stack(x[d], None, State(state.h[d], state.c[d]), fresh=begins, dropout=dropout)
        tops.append(layers[-1])
        states.append(after)
    return torch.stack(tops), State(torch.stack([s.h for s in states]), torch.stack([s.c for s in states]))


def run_stacks_fused(
    bilstm: Callable[..., Any],
    stacks: nn.ModuleList,
    x: Tensor,
    state: State,
    fresh: Tensor | None,
    dropout: float,
) -> tuple[Tensor, State]:
    """The same through a twin that runs all layers of both directions."""
    first = stacks[0]
    assert isinstance(first, LSTMStack)
    dropout = dropout if first.training else 0.0
    if dropout:
        x = nn.functional.dropout(x, dropout)
    keep = None if fresh is None else (~fresh).transpose(1, 2).contiguous().to(x.dtype)  # (D, T, B)
    layers = [  # layer after layer, each of all directions
        cast(ProjectedLSTM, cast(LSTMStack, stack).layers[number])
        for number in range(len(first.layers))
        for stack in stacks
    ]
    out, h, c = bilstm(
        x.transpose(1, 2),  # (D, T, B, P)
        _Stacked.apply(x.dtype, *(layer.kernel for layer in layers)),
        _Stacked.apply(x.dtype, *(layer.bias for layer in layers)),
        _Stacked.apply(x.dtype, *(layer.projection for layer in layers)),
        state.h.transpose(0, 1),  # (L, D, B, P)
        state.c.transpose(0, 1),
        keep,
        cell_clip=layers[0].cell_clip,
        proj_clip=layers[0].proj_clip,
        forget_bias=layers[0].forget_bias,
        skip=first.skip,
        dropout=dropout,
    )
    return out.transpose(1, 2), State(h.transpose(0, 1), c.transpose(0, 1))  # (D, B, T, P)


class _Stacked(torch.autograd.Function):
    """Weights of all layers in one tensor (L*D, ...) of a dtype: read and written once, not cast and then stacked."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> Tensor:
        ctx.kind = weights[0].dtype
        together = weights[0].new_empty(len(weights), *weights[0].shape, dtype=dtype)
        for place, one in zip(together, weights, strict=True):
            place.copy_(one)
        return together

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *(grad.to(ctx.kind) for grad in grads[0]))
