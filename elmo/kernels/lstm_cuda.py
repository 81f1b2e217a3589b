"""Projected LSTM layers with clipping on CUDA: both directions at once, forward and backward.

The twin of `elmo.model.lstm.ProjectedLSTM` for training. A step reads rows [x; h] in one product of both directions
(`gates_cuda`), and one gives such rows' gradient back; the weights' gradients of all steps are one more. What stands
between products is one Triton kernel each (`cells_cuda`), so no activation is read or written twice. Shapes:
D directions, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elmo.kernels.cells_cuda import cell_backward, hand_on, outputs_backward
from elmo.kernels.gates_cuda import Steps

ONES = 8  # columns of ones behind [x; h], of which the bias's gradient comes; 8 are 16 bytes
ALIGNED = 64  # numbers that rows are padded to: 128 bytes, a line of the cache
FEW_ROWS = 256  # up to these, the product over all gates is split: whole, its few tiles would leave most of a GPU idle
PARTS = 8


def bilstm_layer(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor,
    projection: Tensor,
    h: Tensor,
    c: Tensor,
    keep: Tensor | None,
    *,
    cell_clip: float | None,
    proj_clip: float | None,
    forget_bias: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (D, T, B, P) and the last h (D, B, P) and c (D, B, H), each direction read from step 0 on.

    x (D, T, B, P), kernel (D, 2P, 4H), bias (D, 4H), projection (D, H, P) in the products' dtype; h (D, B, P) likewise,
    c (D, B, H) float32; keep (D, T, B) is 0 where a row's state is forgotten before the step. Gradients do not flow
    into the first state nor from the last: text is cut there.
    """
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (x, kernel, bias, projection))
    # outputs are stored in the products' dtype: backwards, a clip that rounding moved would not be known again
    edge = float(torch.tensor(proj_clip or 0.0, dtype=x.dtype))
    settings = _Settings(float(cell_clip or 0.0), edge, float(forget_bias), learns)
    out, last_c = _Layer.apply(x, kernel, bias, projection, h.detach(), c.detach(), keep, settings)
    return out, out[:, -1].detach(), last_c


@dataclass(frozen=True)
class _Settings:
    cell_clip: float  # 0: none
    proj_clip: float
    forget_bias: float
    learns: bool  # what the backward pass reads is kept; otherwise steps share their buffers


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: Tensor,
        bias: Tensor,
        projection: Tensor,
        h: Tensor,
        c: Tensor,
        keep: Tensor | None,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor]:
        D, T, B, P = x.shape
        H = projection.shape[1]
        kept, one = (T, 1) if settings.learns else (1, 0)  # steps that have buffers of their own; how far a step moves
        pitch = -(-(2 * P + ONES) // ALIGNED) * ALIGNED
        rows = x.new_empty(D, T, B, pitch)  # what each step reads: x, h after forgetting, ones
        rows[..., :P] = x
        rows[:, 0, :, P : 2 * P] = h if keep is None else h * keep[:, 0, :, None]
        if settings.learns:
            rows[..., 2 * P : 2 * P + ONES] = 1
        gates = x.new_empty(D, T, B, 4 * H) if settings.learns else None  # without the bias
        cells = torch.empty(D, kept + one, B, H, device=x.device, dtype=torch.float32)
        cells[:, 0] = c
        inner = x.new_empty(D, kept, B, H)  # sigmoid(o) * tanh(c)
        out = x.new_empty(D, T, B, P)
        steps = Steps(rows, kernel, bias)
        for t in range(T):
            s = t * one
            steps.step(
                t, cells[:, s], cells[:, s + one], inner[:, s], None if gates is None else gates[:, t],
                None if keep is None else keep[:, t], clip=settings.cell_clip, forget_bias=settings.forget_bias,
            )  # fmt: skip
            torch.bmm(inner[:, s], projection, out=out[:, t])
            last = t + 1 == T
            hand_on(
                out[:, t], out[:, t], None if last else rows[:, t + 1, :, P : 2 * P],
                None if keep is None or last else keep[:, t + 1], clip=settings.proj_clip,
            )  # fmt: skip
        if gates is not None:
            saved = kernel, bias, projection, rows, gates, cells, inner, out
            ctx.save_for_backward(*saved, *(() if keep is None else (keep,)))
        ctx.settings = settings
        last_c = cells[:, -1].clone()
        ctx.mark_non_differentiable(last_c)
        return out, last_c

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        kernel, bias, projection, rows, gates, cells, inner, out, *rest = ctx.saved_tensors
        keep: Tensor | None = rest[0] if rest else None
        settings: _Settings = ctx.settings
        D, T, B, P = out.shape
        H = projection.shape[1]
        d_out = grads[0] if grads[0].stride(-1) == 1 else grads[0].contiguous()
        projection_t = projection.transpose(1, 2)  # (D, P, H)
        d_gates = torch.empty_like(gates)
        d_hidden = torch.empty_like(out)  # gradient of each step's unclipped output
        d_inner = out.new_empty(D, B, H)
        d_cell = torch.zeros(D, B, H, device=out.device, dtype=torch.float32)
        back = (_InParts if B <= FEW_ROWS else _Together)(kernel, out)
        for t in reversed(range(T)):
            later = None if t + 1 == T else back.to_hidden(t + 1)  # (D, parts, B, P)
            ahead = None if keep is None or later is None else keep[:, t + 1]
            outputs_backward(d_out[:, t], later, out[:, t], d_hidden[:, t], ahead, clip=settings.proj_clip)
            torch.bmm(d_hidden[:, t], projection_t, out=d_inner)
            cell_backward(
                gates[:, t], bias, cells[:, t], d_inner, d_cell, d_gates[:, t], None if keep is None else keep[:, t],
                clip=settings.cell_clip, forget_bias=settings.forget_bias,
            )  # fmt: skip
            back.step(t, d_gates[:, t])
        flat = d_gates.view(D, T * B, 4 * H)
        read = rows.view(D, T * B, -1)[..., : 2 * P + ONES]
        d_read = torch.bmm(read.transpose(1, 2), flat)  # (D, 2P + ONES, 4H)
        d_projection = torch.bmm(inner.view(D, T * B, H).transpose(1, 2), d_hidden.view(D, T * B, P))
        return back.to_x(flat), d_read[:, : 2 * P], d_read[:, 2 * P], d_projection, None, None, None, None


class _Together:
    """Gradients of what each step reads, x and h in one product."""

    def __init__(self, kernel: Tensor, out: Tensor) -> None:
        self._kernel_t = kernel.transpose(1, 2)  # (D, 4H, 2P)
        self._proj_dim = out.shape[3]
        self._rows = out.new_empty(*out.shape[:3], kernel.shape[1])  # (D, T, B, 2P)

    def step(self, t: int, d_gates: Tensor) -> None:
        torch.bmm(d_gates, self._kernel_t, out=self._rows[:, t])

    def to_hidden(self, t: int) -> Tensor:
        """Of the h that step t read: (D, parts, B, P), to be added up."""
        return self._rows[:, None, t, :, self._proj_dim :]

    def to_x(self, d_gates: Tensor) -> Tensor:
        """Of the x of all steps: (D, T, B, P)."""
        return self._rows[..., : self._proj_dim]


class _InParts:
    """The same for few rows: h's share in parts of the gates, x's of all steps at the end."""

    def __init__(self, kernel: Tensor, out: Tensor) -> None:
        D, _, B, P = self._shape = out.shape
        parts = PARTS if kernel.shape[2] % PARTS == 0 else 4
        self._input_t = kernel[:, :P].transpose(1, 2)  # (D, 4H, P)
        self._recurrent_t = kernel[:, P:].unflatten(2, (parts, -1)).permute(0, 2, 3, 1)  # (D, parts, 4H / parts, P)
        self._parts = out.new_empty(D, parts, B, P)

    def step(self, t: int, d_gates: Tensor) -> None:
        if t:  # before step 0 the text is cut
            for rows, weights, to in zip(d_gates, self._recurrent_t, self._parts, strict=True):
                torch.bmm(rows.unflatten(1, (len(to), -1)).transpose(0, 1), weights, out=to)

    def to_hidden(self, t: int) -> Tensor:
        return self._parts

    def to_x(self, d_gates: Tensor) -> Tensor:
        return torch.bmm(d_gates, self._input_t).view(self._shape)
