"""Triton kernels between the matrix products of projected LSTM steps: gates to cells, outputs to the next inputs.

One launch computes one step of every active layer of the wavefront; the forward kernels serve training and embedding,
the backward kernels training. Tensors may be slices of larger ones: LR and B may have any stride, the values of a row
are contiguous. Shapes: LR = active layers * directions, B rows, P projection, H cells.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK, BLOCK_BACKWARD = 1024, 512  # cells per program


def cell_forward(
    gates: Tensor,
    bias: Tensor,
    before: Tensor,
    after: Tensor,
    inner: Tensor,
    keep: Tensor | None = None,
    initial: Tensor | None = None,
    *,
    clip: float,
    forget_bias: float = 0.0,
) -> None:
    """Computes the cells `after`, which may be `before` itself, and `inner` = sigmoid(o) * tanh(c), all (LR, B, H).

    gates (LR, B, 4H) are the matrix products; bias (LR, 4H) is added here. Where keep (LR, B) is 0, the step starts
    from the cells `initial` (LR, H; None: zero) instead of `before`. clip 0 means no clipping.
    """
    LR, B, H = inner.shape
    block = min(BLOCK, triton.next_power_of_2(H))
    _cell_forward_kernel[(LR * B, triton.cdiv(H, block))](
        gates, bias, before, after, inner, gates if keep is None else keep, bias if initial is None else initial,
        gates.stride(0), before.stride(0), after.stride(0), inner.stride(0), 0 if keep is None else keep.stride(0),
        B, H, clip, forget_bias,
        HAS_KEEP=keep is not None, HAS_INITIAL=initial is not None, CLIP=clip > 0, BLOCK=block,
    )  # fmt: skip


def output_forward(
    hidden: Tensor,
    above: Tensor,
    following: Tensor,
    keep: Tensor | None = None,
    initial: Tensor | None = None,
    *,
    clip: float,
    clip_in_place: bool = False,
    skip: Tensor | None = None,
    num_unskipped: int = 0,
    mask: Tensor | None = None,
    num_masked: int = 0,
    scale: float = 1.0,
) -> None:
    """Clips the outputs `hidden` (LR, B, P) and copies them to the inputs of the layer above and of the following step.

    `clip_in_place` also stores the clipped values in `hidden`. `above` is the sum of the output and `skip`, without
    `skip` for the first `num_unskipped` of LR; for the first `num_masked` of LR it is multiplied by the dropout `mask`
    and by scale. Where keep (LR, B) is 0, the following step reads `initial` (LR, P; None: zero) instead. All other
    tensors are (LR, B, P).
    """
    LR, B, P = hidden.shape
    views = hidden, above, following, hidden if skip is None else skip, hidden if mask is None else mask
    strides = [stride for view in views for stride in view.stride()[:2]]
    _output_forward_kernel[(LR * B,)](
        *views, hidden if keep is None else keep, hidden if initial is None else initial,
        *strides, 0 if keep is None else keep.stride(0), num_unskipped, num_masked, scale, B, P, clip,
        CLIP=clip > 0, CLIP_IN_PLACE=clip_in_place and clip > 0, SKIP=skip is not None, MASK=mask is not None,
        HAS_KEEP=keep is not None, HAS_INITIAL=initial is not None, BLOCK=triton.next_power_of_2(P),
    )  # fmt: skip


def output_backward(
    d_above: Tensor,
    d_following: Tensor,
    hidden: Tensor,
    keep: Tensor | None,
    *,
    clip: float,
    skip: Tensor | None = None,
    mask: Tensor | None = None,
    num_linked: int = 0,
    scale: float = 1.0,
) -> None:
    """Overwrites a step's clipped output `hidden` (LR, B, P) with the gradient of the output before clipping.

    The gradient is the sum of those from the layer above (`d_above`) and from the following step (`d_following`, both
    (LR, B, P)); keep (LR, B) is that of the following step. The first `num_linked` of LR have a layer above: `skip` is
    added to their `d_above`, and `mask` and scale are those of `output_forward`. The sum is stored in `d_above`, which
    is the `skip` of the layer below.
    """
    LR, B, P = hidden.shape
    views = d_above, d_following, hidden, d_above if skip is None else skip, d_above if mask is None else mask
    strides = [stride for view in views for stride in view.stride()[:2]]
    _output_backward_kernel[(LR * B,)](
        *views, d_above if keep is None else keep,
        *strides, 0 if keep is None else keep.stride(0), num_linked, scale, B, P, clip,
        SKIP=skip is not None, MASK=mask is not None,
        HAS_KEEP=keep is not None, CLIP=clip > 0, BLOCK=triton.next_power_of_2(P),
    )  # fmt: skip


def cell_backward(
    gates: Tensor,
    bias: Tensor,
    before: Tensor,
    d_inner: Tensor,
    d_cell: Tensor,
    d_gates: Tensor,
    keep: Tensor | None,
    *,
    clip: float,
    forget_bias: float,
) -> None:
    """Computes the gradients d_gates (LR, B, 4H), which may be `gates` itself.

    d_cell (LR, B, H) holds the gradient of the cells after the step and is overwritten with that of the cells before.
    """
    LR, B, H = d_inner.shape
    _cell_backward_kernel[(LR * B, triton.cdiv(H, BLOCK_BACKWARD))](
        gates, bias, before, d_inner, d_cell, d_gates, gates if keep is None else keep,
        gates.stride(0), before.stride(0), d_gates.stride(0), 0 if keep is None else keep.stride(0),
        B, H, clip, forget_bias, HAS_KEEP=keep is not None, CLIP=clip > 0, BLOCK=BLOCK_BACKWARD,
    )  # fmt: skip


# In the kernels, lr and b are indices of LR and B; `x_lr` and `x_b` are the strides of a tensor x along LR and B.


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]  # Triton compiles it
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _clip(x, clip):  # type: ignore[no-untyped-def]  # Triton compiles it
    return tl.where(x > clip, clip, tl.where(x < -clip, -clip, x))  # NaN propagates


@triton.jit
def _program_cells(B, H, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton compiles it
    """The program's row in LR * B, its lr and b, its columns of H, and the mask of columns that exist."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return row, row // B, row % B, cols, cols < H


@triton.jit
def _load_gates(gates, bias, gates_lr, lr, b, H, cols, inside):  # type: ignore[no-untyped-def]  # Triton compiles it
    gate_at, bias_at = gates + lr * gates_lr + b * 4 * H + cols, bias + lr * 4 * H + cols
    i = _load_gate(gate_at, bias_at, inside)
    j = _load_gate(gate_at + H, bias_at + H, inside)
    f = _load_gate(gate_at + 2 * H, bias_at + 2 * H, inside)
    o = _load_gate(gate_at + 3 * H, bias_at + 3 * H, inside)
    return i, j, f, o


@triton.jit
def _load_gate(gate, bias, inside):  # type: ignore[no-untyped-def]  # Triton compiles it
    products = tl.load(gate, mask=inside, other=0.0).to(tl.float32)
    return products + tl.load(bias, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _cell_forward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    gates, bias, before, after, inner, keep, initial,
    gates_lr, before_lr, after_lr, inner_lr, keep_lr, B, H, clip, forget_bias,
    HAS_KEEP: tl.constexpr, HAS_INITIAL: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    _, lr, b, cols, inside = _program_cells(B, H, BLOCK)
    i, j, f, o = _load_gates(gates, bias, gates_lr, lr, b, H, cols, inside)
    c = tl.load(before + lr * before_lr + b * H + cols, mask=inside, other=0.0)
    if HAS_KEEP:
        start = tl.zeros([BLOCK], tl.float32)
        if HAS_INITIAL:
            start = tl.load(initial + lr * H + cols, mask=inside, other=0.0)
        c = tl.where(tl.load(keep + lr * keep_lr + b) != 0, c, start)
    c = tl.sigmoid(f + forget_bias) * c + tl.sigmoid(i) * _tanh(j)
    if CLIP:
        c = _clip(c, clip)
    tl.store(after + lr * after_lr + b * H + cols, c, mask=inside)
    m = tl.sigmoid(o) * _tanh(c)
    tl.store(inner + lr * inner_lr + b * H + cols, m.to(inner.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_unskipped", "num_masked"])
def _output_forward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    hidden, above, following, skip, mask, keep, initial,
    hidden_lr, hidden_b, above_lr, above_b, following_lr, following_b, skip_lr, skip_b, mask_lr, mask_b, keep_lr,
    num_unskipped, num_masked, scale, B, P, clip,
    CLIP: tl.constexpr, CLIP_IN_PLACE: tl.constexpr, SKIP: tl.constexpr, MASK: tl.constexpr, HAS_KEEP: tl.constexpr,
    HAS_INITIAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lr, b = row // B, row % B
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    dtype = hidden.dtype.element_ty
    h = tl.load(hidden + lr * hidden_lr + b * hidden_b + cols, mask=inside, other=0.0)
    if CLIP:
        h = _clip(h.to(tl.float32), clip).to(dtype)
    if CLIP_IN_PLACE:
        tl.store(hidden + lr * hidden_lr + b * hidden_b + cols, h, mask=inside)
    x_above = h
    if SKIP:
        x = tl.load(skip + lr * skip_lr + b * skip_b + cols, mask=inside & (lr >= num_unskipped), other=0.0)
        x_above = (h.to(tl.float32) + x.to(tl.float32)).to(dtype)
    if MASK:
        kept = tl.load(mask + lr * mask_lr + b * mask_b + cols, mask=inside & (lr < num_masked), other=1).to(tl.float32)
        x_above = (x_above.to(tl.float32) * kept * tl.where(lr < num_masked, scale, 1.0)).to(dtype)
    tl.store(above + lr * above_lr + b * above_b + cols, x_above, mask=inside)
    if HAS_KEEP:
        start = tl.zeros([BLOCK], dtype)
        if HAS_INITIAL:
            start = tl.load(initial + lr * P + cols, mask=inside, other=0.0)
        h = tl.where(tl.load(keep + lr * keep_lr + b) != 0, h, start)
    tl.store(following + lr * following_lr + b * following_b + cols, h, mask=inside)


@triton.jit(do_not_specialize=["num_linked"])
def _output_backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    d_above, d_following, hidden, skip, mask, keep,
    d_above_lr, d_above_b, d_following_lr, d_following_b, hidden_lr, hidden_b, skip_lr, skip_b, mask_lr, mask_b,
    keep_lr, num_linked, scale, B, P, clip,
    SKIP: tl.constexpr, MASK: tl.constexpr, HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lr, b = row // B, row % B
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    grad = tl.load(d_above + lr * d_above_lr + b * d_above_b + cols, mask=inside, other=0.0).to(tl.float32)
    if SKIP:
        d_skip = tl.load(skip + lr * skip_lr + b * skip_b + cols, mask=inside & (lr < num_linked), other=0.0)
        grad += d_skip.to(tl.float32)
    if MASK:
        kept = tl.load(mask + lr * mask_lr + b * mask_b + cols, mask=inside & (lr < num_linked), other=1).to(tl.float32)
        grad = grad * kept * tl.where(lr < num_linked, scale, 1.0)
    if SKIP:
        tl.store(d_above + lr * d_above_lr + b * d_above_b + cols, grad.to(d_above.dtype.element_ty), mask=inside)
    d_h = tl.load(d_following + lr * d_following_lr + b * d_following_b + cols, mask=inside, other=0.0).to(tl.float32)
    if HAS_KEEP:
        d_h = d_h * tl.load(keep + lr * keep_lr + b).to(tl.float32)
    grad += d_h
    at = hidden + lr * hidden_lr + b * hidden_b + cols
    if CLIP:
        h = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.where(tl.abs(h) < clip, grad, 0.0)
    tl.store(at, grad.to(hidden.dtype.element_ty), mask=inside)


@triton.jit
def _cell_backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    gates, bias, cells, d_inner, d_cell, d_gates, keep,
    gates_lr, cells_lr, d_gates_lr, keep_lr, B, H, clip, forget_bias,
    HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, lr, b, cols, inside = _program_cells(B, H, BLOCK)
    i, j, f, o = _load_gates(gates, bias, gates_lr, lr, b, H, cols, inside)
    i, j, f, o = tl.sigmoid(i), _tanh(j), tl.sigmoid(f + forget_bias), tl.sigmoid(o)
    before = tl.load(cells + lr * cells_lr + b * H + cols, mask=inside, other=0.0)
    kept = 1.0
    if HAS_KEEP:
        kept = tl.load(keep + lr * keep_lr + b).to(tl.float32)
        before = before * kept
    raw = f * before + i * j  # the cell before clipping; computing it again is cheaper than loading it
    squashed = _tanh(_clip(raw, clip)) if CLIP else _tanh(raw)
    at = row * H + cols
    dm = tl.load(d_inner + at, mask=inside, other=0.0).to(tl.float32)
    dc = tl.load(d_cell + at, mask=inside, other=0.0) + dm * o * (1 - squashed * squashed)
    if CLIP:
        dc = tl.where(tl.abs(raw) <= clip, dc, 0.0)
    dtype = d_gates.dtype.element_ty
    target = d_gates + lr * d_gates_lr + b * 4 * H + cols
    tl.store(target, (dc * j * i * (1 - i)).to(dtype), mask=inside)
    tl.store(target + H, (dc * i * (1 - j * j)).to(dtype), mask=inside)
    tl.store(target + 2 * H, (dc * before * f * (1 - f)).to(dtype), mask=inside)
    tl.store(target + 3 * H, (dm * squashed * o * (1 - o)).to(dtype), mask=inside)
    tl.store(d_cell + at, dc * f * kept, mask=inside)
