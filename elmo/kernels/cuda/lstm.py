"""Projected LSTM stacks with clipping on CUDA for training: a wavefront over all layers and both directions.

This is the fast implementation of `elmo.model.lstm.LSTMStack` for training, forward and backward. A forward step reads
rows [x; h] in one matrix product (`gates`); a backward step computes the gradient of such rows in one product, and one
more product per layer computes the weights' gradients of all steps. Between the products there is one Triton kernel
each (`cells`), so no activation is read or written twice. A launch computes one step of every active layer
(`wavefront`). Shapes: L layers, R directions, LR = L * R, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.kernels.cuda.cells import cell_backward, output_backward, output_forward
from elmo.kernels.cuda.gates import StepLauncher
from elmo.kernels.cuda.wavefront import view_by_step, wavefront

NUM_ONES = 8  # columns of ones after [x; h], which yield the bias's gradient; 8 of them are 16 bytes
ALIGNMENT = 64  # values: the width of rows is padded to a multiple of it, 128 bytes, a cache line


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
    """Outputs (R, T, B, P) of the top layer and the last h (L, R, B, P) and c (L, R, B, H) of all layers.

    x (R, T, B, P) is read from step 0 on in each direction. kernels (LR, 2P, 4H), biases (LR, 4H), projections
    (LR, H, P) and h (L, R, B, P) have the dtype of the products; c (L, R, B, H) is float32. keep (R, T, B) is 0 where a
    row's state is reset before the step. `skip` adds a layer's input to its output in all layers but the first.
    `dropout` is applied to the inputs of all layers but the first. No gradient flows into the initial state or from the
    last one: backpropagation through time is truncated there.
    """
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (x, kernels, biases, projections))
    # The outputs are stored in the products' dtype. The clip is rounded likewise, so that the backward pass recognises
    # clipped outputs.
    rounded_clip = float(torch.tensor(proj_clip or 0.0, dtype=x.dtype))
    is_stacked = len(kernels) > len(x)
    settings = _Settings(
        float(cell_clip or 0.0),
        rounded_clip,
        float(forget_bias),
        skip and is_stacked,
        dropout if is_stacked else 0.0,
        needs_grad,
    )
    out, last_h, last_c = _Stack.apply(  # type: ignore[no-untyped-call]  # of torch
        x, kernels, biases, projections, h.detach(), c.detach(), keep, settings
    )
    return out, last_h, last_c


@dataclass(frozen=True)
class _Settings:
    cell_clip: float  # 0 = no clipping
    proj_clip: float
    forget_bias: float
    skip: bool
    dropout: float
    needs_grad: bool  # activations are stored for the backward pass; otherwise all steps share their buffers

    @property
    def dropout_scale(self) -> float:
        """The factor for the values that dropout does not set to zero."""
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
        R, T, B, P = x.shape
        (LR, H), L = projections.shape[:2], len(projections) // R
        num_diagonals = T + L

        def buffer(width: int, dtype: torch.dtype = x.dtype) -> Tensor:  # without gradients all diagonals share memory
            memory = x.new_empty(LR, num_diagonals if settings.needs_grad else 1, B, width, dtype=dtype)
            return memory.expand(-1, num_diagonals, -1, -1)

        row_width = -(-(2 * P + NUM_ONES) // ALIGNMENT) * ALIGNMENT
        # inputs of each step: x, h after resets, ones; the last R hold the outputs of the top layer
        rows = x.new_empty(LR + R, num_diagonals, B, row_width)
        rows[:R, :T, :, :P] = x
        initial_h = view_by_step(rows[:LR], R, 1)[:, :, 0, :, P : 2 * P]  # (L, R, B, P)
        torch.mul(h, 1.0 if keep is None else keep[:, 0, :, None], out=initial_h)
        if settings.needs_grad:
            rows[:LR, ..., 2 * P : 2 * P + NUM_ONES] = 1
        keep_buffer = None
        if keep is not None:
            keep_buffer = x.new_zeros(LR, num_diagonals, B)
            view_by_step(keep_buffer, R, T)[:] = keep
        gates = buffer(4 * H) if settings.needs_grad else None  # without the bias
        cells = buffer(H, torch.float32)
        view_by_step(cells, R, 1)[:, :, 0] = c
        inner = buffer(H)  # sigmoid(o) * tanh(c)
        hidden = buffer(P)  # each step's output, clipped
        masks = None
        if settings.dropout:
            masks = torch.empty(LR - R, num_diagonals, B, P, device=x.device, dtype=torch.uint8)
            masks.bernoulli_(1.0 - settings.dropout)
        launcher = StepLauncher(rows[:LR], kernels, biases)
        for diagonal, active, above in wavefront(T, L, R):
            num_linked = LR - above.start  # the first num_linked of the active ones have a layer above
            launcher.step(
                diagonal, cells[active, diagonal], cells[active, diagonal + 1], inner[active, diagonal],
                None if gates is None else gates[active, diagonal],
                None if keep_buffer is None else keep_buffer[active, diagonal],
                active=active, clip=settings.cell_clip, forget_bias=settings.forget_bias,
            )  # fmt: skip
            torch.bmm(inner[active, diagonal], projections[active], out=hidden[active, diagonal])
            output_forward(
                hidden[active, diagonal], rows[above, diagonal + 1, :, :P], rows[active, diagonal + 1, :, P : 2 * P],
                None if keep_buffer is None else keep_buffer[active, diagonal + 1],
                clip=settings.proj_clip, clip_in_place=True,
                skip=rows[active, diagonal, :, :P] if settings.skip else None, num_unskipped=max(0, R - active.start),
                mask=None if masks is None or not num_linked else masks[active.start :, diagonal],
                num_masked=num_linked, scale=settings.dropout_scale,
            )  # fmt: skip
        if gates is not None:
            ctx.save_for_backward(kernels, biases, projections, rows, gates, cells, inner, hidden, keep_buffer, masks)
        ctx.settings, ctx.num_steps, ctx.is_consumed = settings, T, False
        last_h, last_c = view_by_step(hidden, R, T)[:, :, -1].clone(), view_by_step(cells, R, T + 1)[:, :, -1].clone()
        ctx.mark_non_differentiable(last_h, last_c)
        out = rows[LR:, L:, :, :P]
        return out if settings.needs_grad else out.contiguous(), last_h, last_c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.is_consumed:  # the gates and outputs have been overwritten with their gradients
            raise RuntimeError(
                "The backward pass of an LSTM stack on CUDA ran a second time; it can only go backward once. "
                "Add the losses before calling backward, or set ELMO_KERNELS=off."
            )
        ctx.is_consumed = True
        kernels, biases, projections, rows, gates, cells, inner, hidden, keep_buffer, masks = ctx.saved_tensors
        settings, T = ctx.settings, ctx.num_steps
        LR, _, B, P = hidden.shape
        R, H = len(rows) - LR, projections.shape[1]
        L = LR // R
        kernels_t, projections_t = kernels.transpose(1, 2), projections.transpose(1, 2)  # (LR, 4H, 2P), (LR, P, H)
        d_inner = hidden.new_empty(LR, B, H)
        d_cell = torch.zeros(LR, B, H, device=hidden.device, dtype=torch.float32)
        d_rows = hidden.new_empty(*rows.shape[:3], 2 * P)  # gradients of x and h of `rows`; the last R of the outputs
        d_rows[LR:, L:, :, :P] = grads[0]
        view_by_step(d_rows[:LR], R, T + 1)[:, :, -1, :, P:] = 0  # no step follows the last one
        for diagonal, active, above in reversed(wavefront(T, L, R)):
            num_linked = LR - above.start
            output_backward(
                d_rows[above, diagonal + 1, :, :P], d_rows[active, diagonal + 1, :, P:], hidden[active, diagonal],
                None if keep_buffer is None else keep_buffer[active, diagonal + 1], clip=settings.proj_clip,
                skip=d_rows[above.start + R :, diagonal + 2, :, :P] if settings.skip and num_linked else None,
                mask=None if masks is None or not num_linked else masks[active.start :, diagonal],
                num_linked=num_linked, scale=settings.dropout_scale,
            )  # fmt: skip
            torch.bmm(hidden[active, diagonal], projections_t[active], out=d_inner[active])
            cell_backward(
                gates[active, diagonal], biases[active], cells[active, diagonal], d_inner[active], d_cell[active],
                gates[active, diagonal], None if keep_buffer is None else keep_buffer[active, diagonal],
                clip=settings.cell_clip, forget_bias=settings.forget_bias,
            )  # fmt: skip
            torch.bmm(gates[active, diagonal], kernels_t[active], out=d_rows[active, diagonal])
        d_kernels = kernels.new_empty(LR, 2 * P + NUM_ONES, 4 * H)
        d_projections = torch.empty_like(projections)
        for layer in range(L):
            active, steps = slice(layer * R, layer * R + R), slice(layer, layer + T)
            inputs = rows[active, steps].flatten(1, 2)[..., : 2 * P + NUM_ONES]  # (R, T*B, 2P + NUM_ONES)
            torch.bmm(inputs.transpose(1, 2), gates[active, steps].flatten(1, 2), out=d_kernels[active])
            states = inner[active, steps].flatten(1, 2)  # (R, T*B, H)
            torch.bmm(states.transpose(1, 2), hidden[active, steps].flatten(1, 2), out=d_projections[active])
        return d_rows[:R, :T, :, :P], d_kernels[:, : 2 * P], d_kernels[:, 2 * P], d_projections, None, None, None, None
