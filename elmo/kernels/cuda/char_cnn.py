"""Character convolutions with max pooling over time on CUDA, without storing the output of the convolutions.

This is the fast implementation of the first half of `elmo.model.token_encoder.CharCNN`. There are only a few hundred
characters, so the response of a filter to a window is a sum of entries of a score table (offset, character, filter).
The tables are small matrix products of character vectors and filters. A window then costs additions only, and the
gradient of the tables is a scatter of the gradient that each filter's best window received.
Shapes: N words, C characters per word, V characters of the alphabet, E char vector, F filters (of one width inside the
kernels).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_BLOCK = 256  # filters per program
NUM_COPIES = 4  # copies of a table's gradient: fewer atomic additions to the same entry for frequent letters


def strongest_windows(
    ids: Tensor, table: Tensor, weights: list[Tensor], biases: list[Tensor], dtype: torch.dtype
) -> Tensor:
    """The maximum over all windows of each filter before the activation, (N, F).

    ids (N, C) are rows of the char vectors `table` (V, E); `weights` are (F, E, width) and `biases` (F,) per width.
    """
    num_used = _num_used_columns(ids)
    pooled = []
    for weight, bias in zip(weights, biases, strict=True):
        scores = torch.einsum("ve,few->wvf", table, weight).to(dtype).contiguous()  # (width, V, F)
        maxima: Tensor = _MaxOverWindows.apply(ids, num_used, scores)  # type: ignore[no-untyped-call]  # of torch
        pooled.append(maxima + bias.to(dtype))
    return torch.cat(pooled, dim=-1)


def _num_used_columns(ids: Tensor) -> Tensor:
    """The number of columns of each row up to the last one that differs from its final column, (N,)."""
    differs = ids != ids[:, -1:]
    positions = torch.arange(1, ids.shape[1] + 1, device=ids.device, dtype=torch.int32)
    return (differs * positions).amax(dim=1).to(torch.int32)


class _MaxOverWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, num_used: Tensor, scores: Tensor) -> Tensor:
        N, C = ids.shape
        width, V, F = scores.shape
        maxima = torch.empty(N, F, device=ids.device, dtype=scores.dtype)
        argmax = torch.empty(N, F, device=ids.device, dtype=torch.uint8)  # first column of the best window
        block = min(MAX_BLOCK, triton.next_power_of_2(F))
        grid = (N, triton.cdiv(F, block))
        _forward_kernel[grid](ids, num_used, scores, maxima, argmax, C, V, F, WIDTH=width, BLOCK=block)
        ctx.save_for_backward(ids, argmax)
        ctx.shape, ctx.dtype = scores.shape, scores.dtype
        return maxima

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        ids, argmax = ctx.saved_tensors
        width, V, F = ctx.shape
        d_scores = torch.zeros(NUM_COPIES, *ctx.shape, device=ids.device, dtype=torch.float32)
        block = min(MAX_BLOCK, triton.next_power_of_2(F))
        grid = (len(ids), triton.cdiv(F, block))
        _backward_kernel[grid](
            ids, argmax, grads[0].contiguous(), d_scores, ids.shape[1], V, F,
            WIDTH=width, BLOCK=block, NUM_COPIES=NUM_COPIES,
        )  # fmt: skip
        return None, None, d_scores.sum(dim=0).to(ctx.dtype)


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    ids, num_used, scores, maxima, argmax, C, V, F, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    n = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < F
    # windows that start after the last used column contain only padding and are equal: one of them is enough
    num_windows = tl.minimum(C - WIDTH, tl.load(num_used + n)) + 1
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    best_start = tl.zeros((BLOCK,), tl.int32)
    for start in range(num_windows):
        response = tl.zeros((BLOCK,), tl.float32)
        for offset in tl.static_range(WIDTH):
            char = tl.load(ids + n * C + start + offset).to(tl.int64)
            response += tl.load(scores + (offset * V + char) * F + cols, mask=inside, other=0.0).to(tl.float32)
        is_better = response > best
        best = tl.where(is_better, response, best)
        best_start = tl.where(is_better, start, best_start)
    tl.store(maxima + n * F + cols, best.to(maxima.dtype.element_ty), mask=inside)
    tl.store(argmax + n * F + cols, best_start.to(tl.uint8), mask=inside)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    ids, argmax, d_maxima, d_scores, C, V, F, WIDTH: tl.constexpr, BLOCK: tl.constexpr, NUM_COPIES: tl.constexpr
):
    n = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < F
    grad = tl.load(d_maxima + n * F + cols, mask=inside, other=0.0).to(tl.float32)
    best_start = tl.load(argmax + n * F + cols, mask=inside, other=0).to(tl.int32)
    copy = d_scores + (n % NUM_COPIES) * WIDTH * V * F
    inside = inside & (grad != 0.0)  # half of the gradients are zero, because a relu follows
    for offset in tl.static_range(WIDTH):
        char = tl.load(ids + n * C + best_start + offset, mask=inside, other=0).to(tl.int64)
        tl.atomic_add(copy + (offset * V + char) * F + cols, grad, mask=inside, sem="relaxed")
