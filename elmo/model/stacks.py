"""Both LSTM stacks over rows of running text for training; each direction reads its own text from left to right.

`elmo.kernels.api.find_stacks` chooses the runner for a device and a model.
Shapes: R directions, L layers, B rows, T tokens, P projection, H cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from elmo.model.lstm import LSTMStack, ProjectedLSTM, State


class FusedStacks(Protocol):
    """One function that runs all layers of all directions and has a backward pass of its own."""

    def __call__(
        self,
        x: Tensor,
        kernels: Tensor,
        biases: Tensor,
        projections: Tensor,
        h: Tensor,
        c: Tensor,
        keep: Tensor | None,
        *,
        cell_clip: float | None,
        proj_clip: float | None,
        forget_bias: float,
        skip: bool,
        dropout: float = 0.0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Top outputs (R, T, B, P) and the last h (L, R, B, P) and c (L, R, B, H) of all layers.

        x (R, T, B, P); kernels (L*R, 2P, 4H), biases (L*R, 4H) and projections (L*R, H, P), ordered by layer, then by
        direction; keep (R, T, B) is 0 where a row's state is reset before the step.
        """


class StackRunner(Protocol):
    """Runs both LSTM stacks over rows of running text, forward and backward."""

    def __call__(
        self, stacks: nn.ModuleList, x: Tensor, state: State, fresh: Tensor | None, dropout: float
    ) -> tuple[Tensor, State]:
        """Top outputs (R, B, T, P) of token vectors x (R, B, T, P), and the states after the last step.

        `state` is h (R, L, B, P), c (R, L, B, H); `fresh` (R, B, T) is true where a row's state is reset before a step.
        """


def run_stacks_plain(
    stacks: nn.ModuleList, x: Tensor, state: State, fresh: Tensor | None, dropout: float
) -> tuple[Tensor, State]:
    """The stacks one after the other in plain PyTorch: the reference implementation of a StackRunner."""
    tops, states = [], []
    for r, stack in enumerate(stacks):
        fresh_rows = None if fresh is None else fresh[r]  # (B, T)
        layers, after = stack(x[r], None, State(state.h[r], state.c[r]), fresh=fresh_rows, dropout=dropout)
        tops.append(layers[-1])
        states.append(after)
    return torch.stack(tops), State(torch.stack([s.h for s in states]), torch.stack([s.c for s in states]))


def run_stacks_fused(
    fused: FusedStacks,
    stacks: nn.ModuleList,
    x: Tensor,
    state: State,
    fresh: Tensor | None,
    dropout: float,
) -> tuple[Tensor, State]:
    """The same through one fused implementation of all layers and directions."""
    first = stacks[0]
    assert isinstance(first, LSTMStack)
    dropout = dropout if first.training else 0.0
    if dropout:
        x = nn.functional.dropout(x, dropout)
    keep = None if fresh is None else (~fresh).transpose(1, 2).contiguous().to(x.dtype)  # (R, T, B)
    layers = [  # ordered by layer, then by direction
        cast(ProjectedLSTM, cast(LSTMStack, stack).layers[number])
        for number in range(len(first.layers))
        for stack in stacks
    ]
    stack_weights: Callable[..., Tensor] = _Stacked.apply
    out, h, c = fused(
        x.transpose(1, 2),  # (R, T, B, P)
        stack_weights(x.dtype, *(layer.kernel for layer in layers)),
        stack_weights(x.dtype, *(layer.bias for layer in layers)),
        stack_weights(x.dtype, *(layer.projection for layer in layers)),
        state.h.transpose(0, 1),  # (L, R, B, P)
        state.c.transpose(0, 1),
        keep,
        cell_clip=layers[0].cell_clip,
        proj_clip=layers[0].proj_clip,
        forget_bias=layers[0].forget_bias,
        skip=first.skip,
        dropout=dropout,
    )
    return out.transpose(1, 2), State(h.transpose(0, 1), c.transpose(0, 1))  # (R, B, T, P)


class _Stacked(torch.autograd.Function):
    """Weights of all layers in one tensor (L*R, ...) of the given dtype, in one copy instead of a cast and a stack."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> Tensor:
        ctx.weight_dtype = weights[0].dtype
        stacked = weights[0].new_empty(len(weights), *weights[0].shape, dtype=dtype)
        for target, weight in zip(stacked, weights, strict=True):
            target.copy_(weight)
        return stacked

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *(grad.to(ctx.weight_dtype) for grad in grads[0]))
