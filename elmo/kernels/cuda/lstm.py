"""Projected LSTM stacks with clipping on CUDA: all layers and both directions in flight, forward and backward.

The twin of `elmo.model.lstm.LSTMStack` for training. A step reads rows [x; h] in one product (`gates_cuda`), and one
gives such rows' gradient back; the weights' gradients of all steps are one more. What stands between products is one
Triton kernel each (`cells_cuda`): no activation is read or written twice, and a launch takes a step of every layer in
flight (`flight`). Shapes: L layers, D directions, E layers times directions, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.kernels.cuda.cells import cell_backward, hand_on, outputs_backward
from elmo.kernels.cuda.gates import Steps
from elmo.kernels.cuda.wavefront import by_step, waves

ONES = 8  # columns of ones behind [x; h], of which the bias's gradient comes; 8 are 16 bytes
ALIGNED = 64  # numbers that rows are padded to: 128 bytes, a line of the cache


def bilstm(
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
    """Outputs (D, T, B, P) of the top layer and the last h (L, D, B, P) and c (L, D, B, H) of all layers.

    x (D, T, B, P), each direction read from step 0 on; kernels (L*D, 2P, 4H), biases (L*D, 4H), projections
    (L*D, H, P) in the products' dtype; h (L, D, B, P) likewise, c (L, D, B, H) float32; keep (D, T, B) is 0 where a
    row's state is forgotten before the step. `skip` adds a layer's input to its output, but for the first layer;
    `dropout` acts on what layers above the first read. Gradients do not flow into the first state nor from the last:
    text is cut there.
    """
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (x, kernels, biases, projections))
    # outputs are stored in the products' dtype: backwards, a clip that rounding moved would not be known again
    edge = float(torch.tensor(proj_clip or 0.0, dtype=x.dtype))
    several = len(kernels) > len(x)
    settings = _Settings(
        float(cell_clip or 0.0), edge, float(forget_bias), skip and several, dropout if several else 0.0, learns
    )
    out, last_h, last_c = _Stack.apply(x, kernels, biases, projections, h.detach(), c.detach(), keep, settings)
    return out, last_h, last_c


@dataclass(frozen=True)
class _Settings:
    cell_clip: float  # 0: none
    proj_clip: float
    forget_bias: float
    skip: bool
    dropout: float
    learns: bool  # what the backward pass reads is kept; otherwise steps share their buffers

    @property
    def scale(self) -> float:
        """Of what dropout leaves."""
        return 1.0 / (1.0 - self.dropout)


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernels: Tensor,
        biases: Tensor,
        projections: Tensor,
        h: Tensor,
        c: Tensor,
        keep: Tensor | None,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor, Tensor]:
        D, T, B, P = x.shape
        (E, H), L = projections.shape[:2], len(projections) // D
        places = T + L

        def buffer(width: int, dtype: torch.dtype = x.dtype) -> Tensor:  # where nothing is learned all places are one
            own = x.new_empty(E, places if settings.learns else 1, B, width, dtype=dtype)
            return own.expand(-1, places, -1, -1)

        pitch = -(-(2 * P + ONES) // ALIGNED) * ALIGNED
        rows = x.new_empty(E + D, places, B, pitch)  # what each step reads: x, h after forgetting, ones; last, outputs
        rows[:D, :T, :, :P] = x
        first = by_step(rows[:E], D, 1)[:, :, 0, :, P : 2 * P]  # (L, D, B, P)
        torch.mul(h, 1.0 if keep is None else keep[:, 0, :, None], out=first)
        if settings.learns:
            rows[:E, ..., 2 * P : 2 * P + ONES] = 1
        stays = None
        if keep is not None:
            stays = x.new_zeros(E, places, B)
            by_step(stays, D, T)[:] = keep
        gates = buffer(4 * H) if settings.learns else None  # without the bias
        cells = buffer(H, torch.float32)
        by_step(cells, D, 1)[:, :, 0] = c
        inner = buffer(H)  # sigmoid(o) * tanh(c)
        hidden = buffer(P)  # each step's output, clipped
        masks = None
        if settings.dropout:
            masks = torch.empty(E - D, places, B, P, device=x.device, dtype=torch.uint8)
            masks.bernoulli_(1.0 - settings.dropout)
        steps = Steps(rows[:E], kernels, biases)
        for place, these, above in waves(T, L, D):
            linked = E - above.start  # the first so many have a layer above
            steps.step(
                place, cells[these, place], cells[these, place + 1], inner[these, place],
                None if gates is None else gates[these, place], None if stays is None else stays[these, place],
                these=these, clip=settings.cell_clip, forget_bias=settings.forget_bias,
            )  # fmt: skip
            torch.bmm(inner[these, place], projections[these], out=hidden[these, place])
            hand_on(
                hidden[these, place], rows[above, place + 1, :, :P], rows[these, place + 1, :, P : 2 * P],
                None if stays is None else stays[these, place + 1], clip=settings.proj_clip, rewrites=True,
                skip=rows[these, place, :, :P] if settings.skip else None, unskipped=max(0, D - these.start),
                mask=None if masks is None or not linked else masks[these.start :, place],
                masked=linked, scale=settings.scale,
            )  # fmt: skip
        if gates is not None:
            ctx.save_for_backward(kernels, biases, projections, rows, gates, cells, inner, hidden, stays, masks)
        ctx.settings, ctx.num_steps, ctx.spent = settings, T, False
        last_h, last_c = by_step(hidden, D, T)[:, :, -1].clone(), by_step(cells, D, T + 1)[:, :, -1].clone()
        ctx.mark_non_differentiable(last_h, last_c)
        out = rows[E:, L:, :, :P]
        return out if settings.learns else out.contiguous(), last_h, last_c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.spent:  # gates and outputs are gradients now
            raise RuntimeError(
                "An LSTM stack on CUDA goes backward once: add the losses first, or set ELMO_KERNELS=off."
            )
        ctx.spent = True
        kernels, biases, projections, rows, gates, cells, inner, hidden, stays, masks = ctx.saved_tensors
        settings, T = ctx.settings, ctx.num_steps
        E, _, B, P = hidden.shape
        D, H = len(rows) - E, projections.shape[1]
        L = E // D
        kernels_t, projections_t = kernels.transpose(1, 2), projections.transpose(1, 2)  # (E, 4H, 2P), (E, P, H)
        d_inner = hidden.new_empty(E, B, H)
        d_cell = torch.zeros(E, B, H, device=hidden.device, dtype=torch.float32)
        d_rows = hidden.new_empty(*rows.shape[:3], 2 * P)  # of what each step read, x and h; last, of the outputs
        d_rows[E:, L:, :, :P] = grads[0]
        by_step(d_rows[:E], D, T + 1)[:, :, -1, :, P:] = 0  # no step comes after the last
        for place, these, above in reversed(waves(T, L, D)):
            linked = E - above.start
            outputs_backward(
                d_rows[above, place + 1, :, :P], d_rows[these, place + 1, :, P:], hidden[these, place],
                None if stays is None else stays[these, place + 1], clip=settings.proj_clip,
                skip=d_rows[above.start + D :, place + 2, :, :P] if settings.skip and linked else None,
                mask=None if masks is None or not linked else masks[these.start :, place],
                linked=linked, scale=settings.scale,
            )  # fmt: skip
            torch.bmm(hidden[these, place], projections_t[these], out=d_inner[these])
            cell_backward(
                gates[these, place], biases[these], cells[these, place], d_inner[these], d_cell[these],
                gates[these, place], None if stays is None else stays[these, place],
                clip=settings.cell_clip, forget_bias=settings.forget_bias,
            )  # fmt: skip
            torch.bmm(gates[these, place], kernels_t[these], out=d_rows[these, place])
        d_kernels = kernels.new_empty(E, 2 * P + ONES, 4 * H)
        d_projections = torch.empty_like(projections)
        for layer in range(L):
            these, part = slice(layer * D, layer * D + D), slice(layer, layer + T)
            read = rows[these, part].flatten(1, 2)[..., : 2 * P + ONES]  # (D, T*B, 2P + ONES)
            torch.bmm(read.transpose(1, 2), gates[these, part].flatten(1, 2), out=d_kernels[these])
            states = inner[these, part].flatten(1, 2)  # (D, T*B, H)
            torch.bmm(states.transpose(1, 2), hidden[these, part].flatten(1, 2), out=d_projections[these])
        return d_rows[:D, :T, :, :P], d_kernels[:, : 2 * P], d_kernels[:, 2 * P], d_projections, None, None, None, None
