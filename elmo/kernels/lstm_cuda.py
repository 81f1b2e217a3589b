"""Projected LSTM layers with clipping on CUDA: both directions at once, forward and backward.

The twin of `elmo.model.lstm.ProjectedLSTM` for training and bulk embedding. The products are cuBLAS's, batched over
directions: the input's share of all steps in one, the recurrent share of each step added in place, the weights'
gradients of all steps in one. What stands between them (gates, cell, clips, their gradients) is one Triton kernel a
step, so no activation is read or written twice. Shapes: D directions, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # cells a program works on


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
    settings = (float(cell_clip or 0.0), float(proj_clip or 0.0), float(forget_bias))
    out, last_c = _Layer.apply(x, kernel, bias, projection, h, c, keep, settings)
    return out, out[:, -1].detach(), last_c


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
        settings: tuple[float, float, float],
    ) -> tuple[Tensor, Tensor]:
        D, T, B, P = x.shape
        H = projection.shape[1]
        gates = torch.bmm(x.reshape(D, T * B, P), kernel[:, :P]).view(D, T, B, 4 * H)  # the bias is added in the cells
        recurrent = kernel[:, P:]  # (D, P, 4H)
        cells = torch.empty(D, T + 1, B, H, device=x.device, dtype=torch.float32)
        cells[:, 0] = c
        hidden = torch.empty(D, T + 1, B, P, device=x.device, dtype=x.dtype)  # what each step reads, after forgetting
        hidden[:, 0] = h if keep is None else h * keep[:, 0, :, None]
        inner = torch.empty(D, T, B, H, device=x.device, dtype=x.dtype)  # sigmoid(o) * tanh(c)
        out = torch.empty(D, T, B, P, device=x.device, dtype=x.dtype)
        for t in range(T):
            now = gates[:, t]
            torch.baddbmm(now, hidden[:, t], recurrent, out=now)
            _cell_forward(gates, bias, cells, inner, keep, t, settings)
            torch.bmm(inner[:, t], projection, out=out[:, t])
            _clip_forward(out, hidden, keep, t, settings[1])
        ctx.save_for_backward(
            x, kernel, bias, projection, gates, cells, hidden, inner, out, *(() if keep is None else (keep,))
        )
        ctx.settings = settings
        last = cells[:, T].clone()
        ctx.mark_non_differentiable(last)
        return out, last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, bias, projection, gates, cells, hidden, inner, out, *rest = ctx.saved_tensors
        keep: Tensor | None = rest[0] if rest else None
        D, T, B, P = x.shape
        H = projection.shape[1]
        d_out = grads[0].contiguous()
        recurrent_t = kernel[:, P:].transpose(1, 2)  # (D, 4H, P)
        projection_t = projection.transpose(1, 2)  # (D, P, H)
        d_gates = torch.empty_like(gates)
        d_hidden = torch.empty(D, T, B, P, device=x.device, dtype=x.dtype)  # gradient of each step's unclipped output
        d_inner = torch.empty(D, B, H, device=x.device, dtype=x.dtype)
        d_cell = torch.zeros(D, B, H, device=x.device, dtype=torch.float32)
        d_recurrent = torch.zeros(D, B, P, device=x.device, dtype=x.dtype)
        for t in reversed(range(T)):
            _clip_backward(d_out, d_recurrent, out, d_hidden, keep, t, ctx.settings[1])
            torch.bmm(d_hidden[:, t], projection_t, out=d_inner)
            _cell_backward(gates, bias, cells, d_inner, d_cell, d_gates, keep, t, ctx.settings)
            if t:
                torch.bmm(d_gates[:, t], recurrent_t, out=d_recurrent)
        flat = d_gates.view(D, T * B, 4 * H)
        d_x = torch.bmm(flat, kernel[:, :P].transpose(1, 2)).view(D, T, B, P)
        # what every gate reads, and ones (8, to keep rows aligned): one product gives the kernel's and bias's gradients
        ones = x.new_ones(1, 1, 8).expand(D, T * B, 8)
        read = torch.cat([x.reshape(D, T * B, P), hidden[:, :T].reshape(D, T * B, P), ones], dim=2)  # (D, T*B, 2P+8)
        d_read = torch.bmm(read.transpose(1, 2), flat)  # (D, 2P+8, 4H)
        d_kernel, d_bias = d_read[:, : 2 * P], d_read[:, 2 * P]
        d_projection = torch.bmm(inner.view(D, T * B, H).transpose(1, 2), d_hidden.view(D, T * B, P))
        return d_x, d_kernel, d_bias, d_projection, None, None, None, None


def _cell_forward(
    gates: Tensor, bias: Tensor, cells: Tensor, inner: Tensor, keep: Tensor | None, t: int, settings: tuple[float, ...]
) -> None:
    D, T, B, H = inner.shape
    grid = (D * B, triton.cdiv(H, BLOCK))
    _cell_forward_kernel[grid](
        gates, bias, cells, inner, keep if keep is not None else cells, t, T, B, H, settings[0], settings[2],
        HAS_KEEP=keep is not None, CLIP=settings[0] > 0, BLOCK=BLOCK,
    )  # fmt: skip


def _clip_forward(out: Tensor, hidden: Tensor, keep: Tensor | None, t: int, clip: float) -> None:
    D, T, B, P = out.shape
    grid = (D * B,)
    _clip_forward_kernel[grid](
        out, hidden, keep if keep is not None else out, t, T, B, P, clip,
        HAS_KEEP=keep is not None and t + 1 < T, CLIP=clip > 0, BLOCK=triton.next_power_of_2(P),
    )  # fmt: skip


def _clip_backward(
    d_out: Tensor, d_recurrent: Tensor, out: Tensor, d_hidden: Tensor, keep: Tensor | None, t: int, clip: float
) -> None:
    D, T, B, P = out.shape
    _clip_backward_kernel[(D * B,)](
        d_out, d_recurrent, out, d_hidden, keep if keep is not None else out, t, T, B, P, clip,
        HAS_KEEP=keep is not None and t + 1 < T, CLIP=clip > 0, BLOCK=triton.next_power_of_2(P),
    )  # fmt: skip


def _cell_backward(
    gates: Tensor, bias: Tensor, cells: Tensor, d_inner: Tensor, d_cell: Tensor, d_gates: Tensor,
    keep: Tensor | None, t: int,
    settings: tuple[float, ...],
) -> None:  # fmt: skip
    D, T, B, four_h = gates.shape
    grid = (D * B, triton.cdiv(four_h // 4, BLOCK))
    _cell_backward_kernel[grid](
        gates, bias, cells, d_inner, d_cell, d_gates, keep if keep is not None else cells, t, T, B, four_h // 4,
        settings[0], settings[2], HAS_KEEP=keep is not None, CLIP=settings[0] > 0, BLOCK=BLOCK,
    )  # fmt: skip


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]  # Triton compiles it
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _biased(gate, bias, inside):  # type: ignore[no-untyped-def]  # Triton compiles it
    products = tl.load(gate, mask=inside, other=0.0).to(tl.float32)
    return products + tl.load(bias, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _cell_forward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    gates, bias, cells, inner, keep, t, T, B, H, clip, forget_bias,
    HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d, b = row // B, row % B
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < H
    at = ((d * T + t) * B + b) * 4 * H + cols
    b_at = d * 4 * H + cols
    i = _biased(gates + at, bias + b_at, inside)
    j = _biased(gates + at + H, bias + b_at + H, inside)
    f = _biased(gates + at + 2 * H, bias + b_at + 2 * H, inside)
    o = _biased(gates + at + 3 * H, bias + b_at + 3 * H, inside)
    before = tl.load(cells + ((d * (T + 1) + t) * B + b) * H + cols, mask=inside, other=0.0)
    if HAS_KEEP:
        before = before * tl.load(keep + (d * T + t) * B + b).to(tl.float32)
    c = tl.sigmoid(f + forget_bias) * before + tl.sigmoid(i) * tanh(j)
    if CLIP:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(cells + ((d * (T + 1) + t + 1) * B + b) * H + cols, c, mask=inside)
    m = tl.sigmoid(o) * tanh(c)
    tl.store(inner + ((d * T + t) * B + b) * H + cols, m.to(inner.dtype.element_ty), mask=inside)


@triton.jit
def _clip_forward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    out, hidden, keep, t, T, B, P, clip, HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d, b = row // B, row % B
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    at = ((d * T + t) * B + b) * P + cols
    h = tl.load(out + at, mask=inside, other=0.0).to(tl.float32)
    if CLIP:
        h = tl.minimum(tl.maximum(h, -clip), clip)
        tl.store(out + at, h.to(out.dtype.element_ty), mask=inside)
    if HAS_KEEP:
        h = h * tl.load(keep + (d * T + t + 1) * B + b).to(tl.float32)
    tl.store(hidden + ((d * (T + 1) + t + 1) * B + b) * P + cols, h.to(hidden.dtype.element_ty), mask=inside)


@triton.jit
def _clip_backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    d_out, d_recurrent, out, d_hidden, keep, t, T, B, P, clip,
    HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d, b = row // B, row % B
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    at = ((d * T + t) * B + b) * P + cols
    later = tl.load(d_recurrent + (d * B + b) * P + cols, mask=inside, other=0.0).to(tl.float32)
    if HAS_KEEP:
        later = later * tl.load(keep + (d * T + t + 1) * B + b).to(tl.float32)
    grad = tl.load(d_out + at, mask=inside, other=0.0).to(tl.float32) + later
    if CLIP:
        h = tl.load(out + at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.where(tl.abs(h) < clip, grad, 0.0)
    tl.store(d_hidden + at, grad.to(d_hidden.dtype.element_ty), mask=inside)


@triton.jit
def _cell_backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    gates, bias, cells, d_inner, d_cell, d_gates, keep, t, T, B, H, clip, forget_bias,
    HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d, b = row // B, row % B
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < H
    at = ((d * T + t) * B + b) * 4 * H + cols
    b_at = d * 4 * H + cols
    i = tl.sigmoid(_biased(gates + at, bias + b_at, inside))
    j = tanh(_biased(gates + at + H, bias + b_at + H, inside))
    f = tl.sigmoid(_biased(gates + at + 2 * H, bias + b_at + 2 * H, inside) + forget_bias)
    o = tl.sigmoid(_biased(gates + at + 3 * H, bias + b_at + 3 * H, inside))
    before = tl.load(cells + ((d * (T + 1) + t) * B + b) * H + cols, mask=inside, other=0.0)
    stays = 1.0
    if HAS_KEEP:
        stays = tl.load(keep + (d * T + t) * B + b).to(tl.float32)
        before = before * stays
    raw = f * before + i * j  # the new cell, cheaper to make again than to read
    squashed = tanh(tl.minimum(tl.maximum(raw, -clip), clip)) if CLIP else tanh(raw)
    place = (d * B + b) * H + cols
    dm = tl.load(d_inner + place, mask=inside, other=0.0).to(tl.float32)
    dc = tl.load(d_cell + place, mask=inside, other=0.0) + dm * o * (1 - squashed * squashed)
    if CLIP:
        dc = tl.where(tl.abs(raw) <= clip, dc, 0.0)
    kind = d_gates.dtype.element_ty
    tl.store(d_gates + at, (dc * j * i * (1 - i)).to(kind), mask=inside)
    tl.store(d_gates + at + H, (dc * i * (1 - j * j)).to(kind), mask=inside)
    tl.store(d_gates + at + 2 * H, (dc * before * f * (1 - f)).to(kind), mask=inside)
    tl.store(d_gates + at + 3 * H, (dm * squashed * o * (1 - o)).to(kind), mask=inside)
    tl.store(d_cell + place, dc * f * stays, mask=inside)
