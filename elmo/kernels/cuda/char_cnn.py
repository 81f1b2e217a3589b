"""The character convolutions and the best window of each filter on CUDA, without ever writing the convolutions out.

The twin of the first half of `elmo.model.token_encoder.CharCNN`. There are only a few hundred characters, so a
filter's answer to a window is a sum of table entries: (offset, character, filter) is that character's share there.
The tables are small products of the character vectors and the filters; a window then costs additions and no
multiplications, and the gradient of the tables is a scatter of what each filter's best window received.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_FILTERS = 256  # a program works on
COPIES = 4  # tables that gradients are scattered into side by side: frequent letters are less of a queue


def strongest_windows(
    ids: Tensor, table: Tensor, weights: list[Tensor], biases: list[Tensor], dtype: torch.dtype
) -> Tensor:
    """The strongest answer of each filter before the activation, (N, F).

    ids (N, C) number rows of `table` (characters, E); `weights` are (count, E, width) each, `biases` (count,).
    """
    used = _used_columns(ids)
    pooled = []
    for weight, bias in zip(weights, biases, strict=True):
        shares = torch.einsum("ve,few->wvf", table, weight).to(dtype).contiguous()  # (width, characters, count)
        best: Tensor = _Strongest.apply(ids, used, shares)
        pooled.append(best + bias.to(dtype))
    return torch.cat(pooled, dim=-1)


def _used_columns(ids: Tensor) -> Tensor:
    """How many columns of each row differ from its last one, (N,): what follows is padding."""
    differs = ids != ids[:, -1:]
    places = torch.arange(1, ids.shape[1] + 1, device=ids.device, dtype=torch.int32)
    return (differs * places).amax(dim=1).to(torch.int32)


class _Strongest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, used: Tensor, shares: Tensor) -> Tensor:
        N, C = ids.shape
        width, V, count = shares.shape
        best = torch.empty(N, count, device=ids.device, dtype=shares.dtype)
        where = torch.empty(N, count, device=ids.device, dtype=torch.uint8)
        block = min(MOST_FILTERS, triton.next_power_of_2(count))
        grid = (N, triton.cdiv(count, block))
        _forward_kernel[grid](ids, used, shares, best, where, C, V, count, WIDTH=width, BLOCK=block)
        ctx.save_for_backward(ids, where)
        ctx.shape, ctx.dtype = shares.shape, shares.dtype
        return best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        ids, where = ctx.saved_tensors
        width, V, count = ctx.shape
        d_shares = torch.zeros(COPIES, *ctx.shape, device=ids.device, dtype=torch.float32)
        block = min(MOST_FILTERS, triton.next_power_of_2(count))
        grid = (len(ids), triton.cdiv(count, block))
        _backward_kernel[grid](
            ids, where, grads[0].contiguous(), d_shares, ids.shape[1], V, count, WIDTH=width, BLOCK=block, COPIES=COPIES
        )
        return None, None, d_shares.sum(dim=0).to(ctx.dtype)


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    ids, used, shares, best, where, C, V, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    n = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < count
    # windows that start behind the last used column are all padding and all alike: one of them is enough
    windows = tl.minimum(C - WIDTH, tl.load(used + n)) + 1
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    place = tl.zeros((BLOCK,), tl.int32)
    for start in range(windows):
        answer = tl.zeros((BLOCK,), tl.float32)
        for offset in tl.static_range(WIDTH):
            char = tl.load(ids + n * C + start + offset).to(tl.int64)
            answer += tl.load(shares + (offset * V + char) * count + cols, mask=inside, other=0.0).to(tl.float32)
        better = answer > top
        top = tl.where(better, answer, top)
        place = tl.where(better, start, place)
    tl.store(best + n * count + cols, top.to(best.dtype.element_ty), mask=inside)
    tl.store(where + n * count + cols, place.to(tl.uint8), mask=inside)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    ids, where, d_best, d_shares, C, V, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr, COPIES: tl.constexpr
):
    n = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < count
    grad = tl.load(d_best + n * count + cols, mask=inside, other=0.0).to(tl.float32)
    place = tl.load(where + n * count + cols, mask=inside, other=0).to(tl.int32)
    mine = d_shares + (n % COPIES) * WIDTH * V * count
    inside = inside & (grad != 0.0)  # half of them, behind a relu
    for offset in tl.static_range(WIDTH):
        char = tl.load(ids + n * C + place + offset, mask=inside, other=0).to(tl.int64)
        tl.atomic_add(mine + (offset * V + char) * count + cols, grad, mask=inside, sem="relaxed")
