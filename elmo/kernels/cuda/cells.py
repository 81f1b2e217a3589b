"""What stands between the products of projected LSTM steps, a Triton kernel each: gates to cells, outputs to readers.

One step of every layer in flight at a time, forward for training and embedding alike, backward for training. Tensors
may be slices of larger ones: directions and rows at any stride, a row's numbers side by side. Shapes: D layers in
flight times directions, B rows, P projection, H cells.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK, BLOCK_BACKWARD = 1024, 512  # cells a program works on


def cell_forward(
    gates: Tensor,
    bias: Tensor,
    before: Tensor,
    after: Tensor,
    inner: Tensor,
    keep: Tensor | None = None,
    first: Tensor | None = None,
    *,
    clip: float,
    forget_bias: float = 0.0,
) -> None:
    """Cells `after` (D, B, H), which may be `before` itself, and `inner` = sigmoid(o) * tanh(c) (D, B, H).

    gates (D, B, 4H) are the products, bias (D, 4H) is added. Where keep (D, B) is 0 the cells before were `first`
    (D, H; None: zero). clip 0: none.
    """
    D, B, H = inner.shape
    block = min(BLOCK, triton.next_power_of_2(H))
    _cell_forward_kernel[(D * B, triton.cdiv(H, block))](
        gates, bias, before, after, inner, gates if keep is None else keep, bias if first is None else first,
        gates.stride(0), before.stride(0), after.stride(0), inner.stride(0), 0 if keep is None else keep.stride(0),
        B, H, clip, forget_bias,
        HAS_KEEP=keep is not None, HAS_FIRST=first is not None, CLIP=clip > 0, BLOCK=block,
    )  # fmt: skip


def hand_on(
    hidden: Tensor,
    above: Tensor,
    following: Tensor,
    keep: Tensor | None = None,
    first: Tensor | None = None,
    *,
    clip: float,
    rewrites: bool = False,
    skip: Tensor | None = None,
    unskipped: int = 0,
    mask: Tensor | None = None,
    masked: int = 0,
    scale: float = 1.0,
) -> None:
    """The outputs (D, B, P), clipped, to where the layer above reads them and to where the next step does.

    With `rewrites` they are clipped in `hidden`, too. `above` gets `skip` added, but for the first `unskipped` of D,
    and of the first `masked` of D it gets what `mask` leaves, times scale. Where keep (D, B) is 0 the next step reads
    `first` (D, P; None: zero) instead. All other tensors are (D, B, P).
    """
    D, B, P = hidden.shape
    views = hidden, above, following, hidden if skip is None else skip, hidden if mask is None else mask
    strides = [stride for view in views for stride in view.stride()[:2]]
    _hand_on_kernel[(D * B,)](
        *views, hidden if keep is None else keep, hidden if first is None else first,
        *strides, 0 if keep is None else keep.stride(0), unskipped, masked, scale, B, P, clip,
        CLIP=clip > 0, REWRITES=rewrites and clip > 0, SKIP=skip is not None, MASK=mask is not None,
        HAS_KEEP=keep is not None, HAS_FIRST=first is not None, BLOCK=triton.next_power_of_2(P),
    )  # fmt: skip


def outputs_backward(
    d_above: Tensor,
    later: Tensor,
    hidden: Tensor,
    keep: Tensor | None,
    *,
    clip: float,
    skip: Tensor | None = None,
    mask: Tensor | None = None,
    linked: int = 0,
    scale: float = 1.0,
) -> None:
    """A step's clipped output `hidden` (D, B, P) becomes the gradient of the unclipped one.

    It comes from what was read above, and by the next step.

    `later` (D, B, P) is what came back from the next step, keep (D, B) as that step had it. The first `linked` of D
    were read by a layer above: `skip` is added to what it gave back, and `mask` and scale are those of `hand_on`; the
    sum is left in `d_above`, which is `skip` to the layer below.
    """
    D, B, P = hidden.shape
    views = d_above, later, hidden, d_above if skip is None else skip, d_above if mask is None else mask
    strides = [stride for view in views for stride in view.stride()[:2]]
    _outputs_backward_kernel[(D * B,)](
        *views, d_above if keep is None else keep,
        *strides, 0 if keep is None else keep.stride(0), linked, scale, B, P, clip,
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
    """Gradients d_gates (D, B, 4H), which may be `gates` itself; d_cell (D, B, H) goes from cells after to before."""
    D, B, H = d_inner.shape
    _cell_backward_kernel[(D * B, triton.cdiv(H, BLOCK_BACKWARD))](
        gates, bias, before, d_inner, d_cell, d_gates, gates if keep is None else keep,
        gates.stride(0), before.stride(0), d_gates.stride(0), 0 if keep is None else keep.stride(0),
        B, H, clip, forget_bias, HAS_KEEP=keep is not None, CLIP=clip > 0, BLOCK=BLOCK_BACKWARD,
    )  # fmt: skip


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]  # Triton compiles it
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _clipped(x, clip):  # type: ignore[no-untyped-def]  # Triton compiles it
    return tl.where(x > clip, clip, tl.where(x < -clip, -clip, x))  # not a number stays visible


@triton.jit
def _own_cells(B, H, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton compiles it
    """Row of all directions, direction, its row, cells a program works on, and which of these there are."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return row, row // B, row % B, cols, cols < H


@triton.jit
def _biased_gates(gates, bias, stride, d, b, H, cols, inside):  # type: ignore[no-untyped-def]  # Triton compiles it
    at, b_at = gates + d * stride + b * 4 * H + cols, bias + d * 4 * H + cols
    i = _biased(at, b_at, inside)
    j = _biased(at + H, b_at + H, inside)
    f = _biased(at + 2 * H, b_at + 2 * H, inside)
    o = _biased(at + 3 * H, b_at + 3 * H, inside)
    return i, j, f, o


@triton.jit
def _biased(gate, bias, inside):  # type: ignore[no-untyped-def]  # Triton compiles it
    products = tl.load(gate, mask=inside, other=0.0).to(tl.float32)
    return products + tl.load(bias, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _cell_forward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    gates, bias, before, after, inner, keep, first,
    gate_stride, before_stride, after_stride, inner_stride, keep_stride, B, H, clip, forget_bias,
    HAS_KEEP: tl.constexpr, HAS_FIRST: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    _, d, b, cols, inside = _own_cells(B, H, BLOCK)
    i, j, f, o = _biased_gates(gates, bias, gate_stride, d, b, H, cols, inside)
    c = tl.load(before + d * before_stride + b * H + cols, mask=inside, other=0.0)
    if HAS_KEEP:
        start = tl.zeros([BLOCK], tl.float32)
        if HAS_FIRST:
            start = tl.load(first + d * H + cols, mask=inside, other=0.0)
        c = tl.where(tl.load(keep + d * keep_stride + b) != 0, c, start)
    c = tl.sigmoid(f + forget_bias) * c + tl.sigmoid(i) * _tanh(j)
    if CLIP:
        c = _clipped(c, clip)
    tl.store(after + d * after_stride + b * H + cols, c, mask=inside)
    m = tl.sigmoid(o) * _tanh(c)
    tl.store(inner + d * inner_stride + b * H + cols, m.to(inner.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["unskipped", "masked"])
def _hand_on_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    hidden, above, following, skip, mask, keep, first,
    hidden_d, hidden_b, above_d, above_b, following_d, following_b, skip_d, skip_b, mask_d, mask_b, keep_d,
    unskipped, masked, scale, B, P, clip,
    CLIP: tl.constexpr, REWRITES: tl.constexpr, SKIP: tl.constexpr, MASK: tl.constexpr, HAS_KEEP: tl.constexpr,
    HAS_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d, b = row // B, row % B
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    kind = hidden.dtype.element_ty
    h = tl.load(hidden + d * hidden_d + b * hidden_b + cols, mask=inside, other=0.0)
    if CLIP:
        h = _clipped(h.to(tl.float32), clip).to(kind)
    if REWRITES:
        tl.store(hidden + d * hidden_d + b * hidden_b + cols, h, mask=inside)
    read = h
    if SKIP:
        x = tl.load(skip + d * skip_d + b * skip_b + cols, mask=inside & (d >= unskipped), other=0.0)
        read = (h.to(tl.float32) + x.to(tl.float32)).to(kind)
    if MASK:
        stays = tl.load(mask + d * mask_d + b * mask_b + cols, mask=inside & (d < masked), other=1).to(tl.float32)
        read = (read.to(tl.float32) * stays * tl.where(d < masked, scale, 1.0)).to(kind)
    tl.store(above + d * above_d + b * above_b + cols, read, mask=inside)
    if HAS_KEEP:
        start = tl.zeros([BLOCK], kind)
        if HAS_FIRST:
            start = tl.load(first + d * P + cols, mask=inside, other=0.0)
        h = tl.where(tl.load(keep + d * keep_d + b) != 0, h, start)
    tl.store(following + d * following_d + b * following_b + cols, h, mask=inside)


@triton.jit(do_not_specialize=["linked"])
def _outputs_backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    d_above, later, hidden, skip, mask, keep,
    d_above_d, d_above_b, later_d, later_b, hidden_d, hidden_b, skip_d, skip_b, mask_d, mask_b, keep_d,
    linked, scale, B, P, clip,
    SKIP: tl.constexpr, MASK: tl.constexpr, HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d, b = row // B, row % B
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    grad = tl.load(d_above + d * d_above_d + b * d_above_b + cols, mask=inside, other=0.0).to(tl.float32)
    if SKIP:
        past = tl.load(skip + d * skip_d + b * skip_b + cols, mask=inside & (d < linked), other=0.0)
        grad += past.to(tl.float32)
    if MASK:
        stays = tl.load(mask + d * mask_d + b * mask_b + cols, mask=inside & (d < linked), other=1).to(tl.float32)
        grad = grad * stays * tl.where(d < linked, scale, 1.0)
    if SKIP:
        tl.store(d_above + d * d_above_d + b * d_above_b + cols, grad.to(d_above.dtype.element_ty), mask=inside)
    back = tl.load(later + d * later_d + b * later_b + cols, mask=inside, other=0.0).to(tl.float32)
    if HAS_KEEP:
        back = back * tl.load(keep + d * keep_d + b).to(tl.float32)
    grad += back
    at = hidden + d * hidden_d + b * hidden_b + cols
    if CLIP:
        h = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.where(tl.abs(h) < clip, grad, 0.0)
    tl.store(at, grad.to(hidden.dtype.element_ty), mask=inside)


@triton.jit
def _cell_backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    gates, bias, cells, d_inner, d_cell, d_gates, keep,
    gate_stride, cell_stride, d_gate_stride, keep_stride, B, H, clip, forget_bias,
    HAS_KEEP: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, d, b, cols, inside = _own_cells(B, H, BLOCK)
    i, j, f, o = _biased_gates(gates, bias, gate_stride, d, b, H, cols, inside)
    i, j, f, o = tl.sigmoid(i), _tanh(j), tl.sigmoid(f + forget_bias), tl.sigmoid(o)
    before = tl.load(cells + d * cell_stride + b * H + cols, mask=inside, other=0.0)
    stays = 1.0
    if HAS_KEEP:
        stays = tl.load(keep + d * keep_stride + b).to(tl.float32)
        before = before * stays
    raw = f * before + i * j  # the new cell, cheaper to make again than to read
    squashed = _tanh(_clipped(raw, clip)) if CLIP else _tanh(raw)
    at = row * H + cols
    dm = tl.load(d_inner + at, mask=inside, other=0.0).to(tl.float32)
    dc = tl.load(d_cell + at, mask=inside, other=0.0) + dm * o * (1 - squashed * squashed)
    if CLIP:
        dc = tl.where(tl.abs(raw) <= clip, dc, 0.0)
    kind = d_gates.dtype.element_ty
    to = d_gates + d * d_gate_stride + b * 4 * H + cols
    tl.store(to, (dc * j * i * (1 - i)).to(kind), mask=inside)
    tl.store(to + H, (dc * i * (1 - j * j)).to(kind), mask=inside)
    tl.store(to + 2 * H, (dc * before * f * (1 - f)).to(kind), mask=inside)
    tl.store(to + 3 * H, (dm * squashed * o * (1 - o)).to(kind), mask=inside)
    tl.store(d_cell + at, dc * f * stays, mask=inside)
