"""Tokens to rows and steps and back on CUDA: laid out, looked up, mixed into their place, pooled.

What stands before and after the LSTM steps (`steps_cuda`) in bulk embedding. Shapes: D directions, T steps, R rows,
S sentences, N tokens without boundaries, P projection, K wanted vectors a token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

BEGIN_ROW, END_ROW = 0, 1  # of the table of words: the boundaries
TOKENS = 64  # of a sentence that are laid out at once
COLUMNS = 256  # a program pools


@dataclass(frozen=True)
class Layout:
    """words, places (D, T, R) int32: the table's row to read, and the row of the result (-1: none); keep (T + 1, R)
    uint8: 0 where a sentence begins or nobody is. Idle places read row 0 and go nowhere."""

    words: Tensor
    places: Tensor
    keep: Tensor


def lay_out(
    words: Tensor, offsets: Tensor, slots: Tensor, starts: Tensor, *, num_steps: int, num_rows: int, num_directions: int
) -> Layout:
    """words (N,), offsets (S + 1,), slots and starts (S,), all int32. The second direction reads from the end."""
    shape, device = (num_directions, num_steps, num_rows), words.device
    found = Layout(
        words=torch.zeros(shape, device=device, dtype=torch.int32),
        places=torch.full(shape, -1, device=device, dtype=torch.int32),
        keep=torch.zeros(num_steps + 1, num_rows, device=device, dtype=torch.uint8),
    )
    _lay_out_kernel[(len(slots), num_directions)](
        words, offsets, slots, starts, found.words, found.places, found.keep, num_steps, num_rows,
        BEGIN=BEGIN_ROW, END=END_ROW, BLOCK=TOKENS,
    )  # fmt: skip
    return found


def look_up(table: Tensor, words: Tensor, rows: Tensor) -> None:
    """Vectors of words (D, n, R) from the table (V, P) into the first half of rows (D, n or more, R, 2P)."""
    D, n, R = words.shape
    P = table.shape[1]
    _look_up_kernel[(n * R, D)](
        table, words, rows, words.stride(0), rows.stride(0), P, BLOCK=triton.next_power_of_2(P)
    )  # fmt: skip


def hand_out(rows: Tensor, places: Tensor, mix: Tensor, out: Tensor) -> None:
    """Layers rows (L + 1, D, n, R, 2P) mixed by mix (K, L + 1) float32, to places (D, n, R) of out (K, N, D*P)."""
    num_layers, D, n, R, _ = rows.shape
    K, N, width = out.shape
    P = width // D
    _hand_out_kernel[(n * R, D)](
        rows, places, mix, out, rows.stride(0), rows.stride(1), places.stride(0), K, N, P, width,
        LAYERS=num_layers, BLOCK=triton.next_power_of_2(P),
    )  # fmt: skip


def pool(vectors: Tensor, offsets: Tensor, pooling: str, dtype: torch.dtype) -> Tensor:
    """Mean or max over each sentence's tokens: (K, N, width) to (S, K, width); zero for a sentence without tokens."""
    K, N, width = vectors.shape
    pooled = torch.empty(len(offsets) - 1, K, width, device=vectors.device, dtype=dtype)
    _pool_kernel[(len(pooled), K, triton.cdiv(width, COLUMNS))](
        vectors, offsets, pooled, K, N, width, MEAN={"mean": True, "max": False}[pooling], BLOCK=COLUMNS
    )  # fmt: skip
    return pooled


@triton.jit(do_not_specialize=["T"])  # compiled once, whatever the amount of text
def _lay_out_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    words, offsets, slots, starts, to_words, to_places, to_keep, T, R,
    BEGIN: tl.constexpr, END: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    s, d = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    slot, start = tl.load(slots + s).to(tl.int64), tl.load(starts + s).to(tl.int64)
    begin = tl.load(offsets + s).to(tl.int64)
    length = tl.where(slot < 0, 0, tl.load(offsets + s + 1) - begin + 2).to(tl.int32)  # with boundaries
    for at in range(0, length, BLOCK):
        k = at + tl.arange(0, BLOCK)
        inside = k < length
        inner = (k > 0) & (k < length - 1)
        word = tl.load(words + begin + k - 1, mask=inner, other=0)
        word = tl.where(k == 0, BEGIN, tl.where(k == length - 1, END, word))
        step = start + tl.where(d == 0, k, length - 1 - k)
        to = step * R + slot
        tl.store(to_words + d * T * R + to, word, mask=inside)
        tl.store(to_places + d * T * R + to, (begin + k - 1).to(tl.int32), mask=inner)
        # both directions begin a sentence at the same step
        tl.store(to_keep + (start + k) * R + slot, (k > 0).to(tl.uint8), mask=inside & (d == 0))


@triton.jit(do_not_specialize=["word_stride"])
def _look_up_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    table, words, rows, word_stride, stride, P, BLOCK: tl.constexpr
):
    row, d = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    word = tl.load(words + d * word_stride + row).to(tl.int64)
    vector = tl.load(table + word * P + cols, mask=inside, other=0.0)
    tl.store(rows + d * stride + row * 2 * P + cols, vector, mask=inside)


@triton.jit(do_not_specialize=["N", "place_stride"])
def _hand_out_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    rows, places, mix, out, layer_stride, stride, place_stride, K, N, P, width,
    LAYERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, d = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    place = tl.load(places + d * place_stride + row).to(tl.int64)
    if place >= 0:
        for k in range(K):
            mixed = tl.zeros((BLOCK,), tl.float32)
            for layer in tl.static_range(LAYERS):
                share = tl.load(mix + k * LAYERS + layer)
                if share != 0.0:
                    at = rows + layer * layer_stride + d * stride + row * 2 * P + cols
                    mixed += share * tl.load(at, mask=inside, other=0.0).to(tl.float32)
            to = (place + k * N) * width + d * P + cols
            tl.store(out + to, mixed.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N"])
def _pool_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    vectors, offsets, pooled, K, N, width, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    s, k = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    cols = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    begin, end = tl.load(offsets + s), tl.load(offsets + s + 1)
    found = tl.zeros((BLOCK,), tl.float32)
    if not MEAN:
        found = tl.full((BLOCK,), float("-inf"), tl.float32)
    for token in range(begin, end):
        vector = tl.load(vectors + (k * N + token) * width + cols, mask=inside, other=0.0).to(tl.float32)
        if MEAN:
            found += vector
        else:
            found = tl.where((vector > found) | (vector != vector), vector, found)  # not a number stays visible
    if MEAN:
        found = found / tl.maximum(end - begin, 1).to(tl.float32)
    else:
        found = tl.where(end > begin, found, 0.0)
    tl.store(pooled + (s * K + k) * width + cols, found.to(pooled.dtype.element_ty), mask=inside)
