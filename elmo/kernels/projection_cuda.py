"""The projection of LSTM steps on CUDA, inner cells to outputs before their clip.

A deep product with few columns: with few rows it has so few tiles that most of a GPU would idle, so its depth is
worked on in parts, added where the outputs are handed on (`cells_cuda.hand_on`).
Shapes: D directions, B rows, H cells, P projection, S parts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

FEW_ROWS = 256  # up to these, in parts
PARTS = 8
SHALLOWEST = 256  # a part's depth: shallower ones gain nothing
ROWS, COLUMNS, DEPTH = 128, 64, 64  # a program works on at once


class Projection:
    """Projects by weights (D, H, P), so many rows a time."""

    def __init__(self, weights: Tensor, num_rows: int) -> None:
        D, H, P = weights.shape
        self._weights = weights
        whole = num_rows > FEW_ROWS or weights.dtype == torch.float32 or H < PARTS * SHALLOWEST
        self._parts = 1 if whole or H % (PARTS * DEPTH) or P % COLUMNS else PARTS
        kind = weights.dtype if self._parts == 1 else torch.float32
        self._hidden = weights.new_empty(D, self._parts, num_rows, P, dtype=kind)

    def __call__(self, inner: Tensor) -> Tensor:
        """Of inner (D, B, H): (D, S, B, P), to be added up; overwritten by the next call."""
        if self._parts == 1:
            torch.bmm(inner, self._weights, out=self._hidden[:, 0])
        else:
            product_in_parts(inner, self._weights, self._hidden)
        return self._hidden


def product_in_parts(inner: Tensor, weights: Tensor, parts: Tensor) -> None:
    """inner (D, B, H) times weights (D, H, P) into parts (D, S, B, P) float32, each of H / S of the depth.

    S * 64 divides H and 64 divides P; weights and parts are contiguous.
    """
    D, S, B, P = parts.shape
    H = weights.shape[1]
    assert H % (S * DEPTH) == 0
    assert P % COLUMNS == 0
    _product_in_parts_kernel[(P // COLUMNS, S, D * triton.cdiv(B, ROWS))](
        inner, weights, parts, inner.stride(0), B, H, P,
        PARTS=S, ROWS=ROWS, COLUMNS=COLUMNS, DEPTH=DEPTH, num_warps=4, num_stages=4,
    )  # fmt: skip


@triton.jit
def _product_in_parts_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    inner, weights, parts, inner_stride, B, H, P,
    PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(1)
    d, m = tl.program_id(2) // tl.cdiv(B, ROWS), tl.program_id(2) % tl.cdiv(B, ROWS)
    row, col = m * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    deep = part * (H // PARTS) + tl.arange(0, DEPTH)
    inside = (row < B)[:, None]
    a = inner + d.to(tl.int64) * inner_stride + row[:, None] * H + deep[None, :]
    b = weights + d * H * P + deep[:, None] * P + col[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(0, H // PARTS, DEPTH):
        total = tl.dot(tl.load(a, mask=inside, other=0.0), tl.load(b), total, input_precision="ieee")
        a += DEPTH
        b += DEPTH * P
    tl.store(parts + ((d * PARTS + part) * B + row[:, None]) * P + col[None, :], total, mask=inside)
