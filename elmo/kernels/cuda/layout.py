"""Kernels before and after the LSTM steps of bulk embedding: layout, embedding lookup, layer mixing and pooling.

Each token gets a row and a step (`kernels.packing`); its word vector is gathered from the word table, and its mixed
layers are scattered to its position in the result. The LSTM steps themselves are in `kernels.cuda.steps`.
Shapes: R directions, T steps, B rows, S sentences, N tokens without boundaries, P projection, L layers, V words,
K vectors per token, D = R * P.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

BEGIN_ROW, END_ROW = 0, 1  # rows of the word table that hold the boundaries
TOKEN_BLOCK = 64  # tokens of a sentence that the layout kernel handles at once
POOL_BLOCK = 256  # columns that one program pools


@dataclass(frozen=True)
class Layout:
    """What each row reads and writes at each step.

    words and output_rows are (R, T, B) int32: the row of the word table to read, and the row of the result to write
    (-1: none). keep (T + 1, B) uint8 is 0 where a sentence begins or no sentence runs. Where no sentence runs, row 0 of
    the word table is read and nothing is written.
    """

    words: Tensor
    output_rows: Tensor
    keep: Tensor


def make_layout(
    words: Tensor, offsets: Tensor, slots: Tensor, starts: Tensor, *, num_steps: int, num_rows: int, num_directions: int
) -> Layout:
    """The layout of words (N,) with sentence offsets (S + 1,), slots and starts (S,) of a `Packing`; all are int32.

    The second direction reads each sentence from its end.
    """
    shape, device = (num_directions, num_steps, num_rows), words.device
    layout = Layout(
        words=torch.zeros(shape, device=device, dtype=torch.int32),
        output_rows=torch.full(shape, -1, device=device, dtype=torch.int32),
        keep=torch.zeros(num_steps + 1, num_rows, device=device, dtype=torch.uint8),
    )
    _layout_kernel[(len(slots), num_directions)](
        words, offsets, slots, starts, layout.words, layout.output_rows, layout.keep, num_steps, num_rows,
        BEGIN=BEGIN_ROW, END=END_ROW, BLOCK=TOKEN_BLOCK,
    )  # fmt: skip
    return layout


def gather_inputs(table: Tensor, words: Tensor, rows: Tensor) -> None:
    """Embedding lookup: copies the vectors of words (R, n, B) from the table (V, P) to rows (R, >= n, B, 2P).

    The vectors fill the first half of the last dimension.
    """
    R, n, B = words.shape
    P = table.shape[1]
    _gather_inputs_kernel[(n * B, R)](
        table, words, rows, words.stride(0), rows.stride(0), P, BLOCK=triton.next_power_of_2(P)
    )  # fmt: skip


def scatter_outputs(rows: Tensor, output_rows: Tensor, mix: Tensor, out: Tensor) -> None:
    """Mixes the layers of rows (L + 1, R, n, B, 2P) and writes each token's vectors to its row of out (K, N, D).

    mix (K, L + 1) float32 holds the weights of the layers; output_rows (R, n, B) is that of `Layout`.
    """
    num_layers, R, n, B, _ = rows.shape
    K, N, D = out.shape
    P = D // R
    _scatter_outputs_kernel[(n * B, R)](
        rows, output_rows, mix, out, rows.stride(0), rows.stride(1), output_rows.stride(0), K, N, P, D,
        LAYERS=num_layers, BLOCK=triton.next_power_of_2(P),
    )  # fmt: skip


def pool(vectors: Tensor, offsets: Tensor, pooling: str, dtype: torch.dtype) -> Tensor:
    """Mean or max over each sentence's tokens: (K, N, D) to (S, K, D); zero for a sentence without tokens."""
    K, N, D = vectors.shape
    pooled = torch.empty(len(offsets) - 1, K, D, device=vectors.device, dtype=dtype)
    _pool_kernel[(len(pooled), K, triton.cdiv(D, POOL_BLOCK))](
        vectors, offsets, pooled, K, N, D, MEAN={"mean": True, "max": False}[pooling], BLOCK=POOL_BLOCK
    )  # fmt: skip
    return pooled


@triton.jit(do_not_specialize=["T"])  # compiled once for any amount of text
def _layout_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    words, offsets, slots, starts, layout_words, layout_output_rows, layout_keep, T, B,
    BEGIN: tl.constexpr, END: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    s, r = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    slot, start = tl.load(slots + s).to(tl.int64), tl.load(starts + s).to(tl.int64)
    begin = tl.load(offsets + s).to(tl.int64)
    length = tl.where(slot < 0, 0, tl.load(offsets + s + 1) - begin + 2).to(tl.int32)  # with boundaries
    for block in range(0, length, BLOCK):
        t = block + tl.arange(0, BLOCK)
        inside = t < length
        is_word = (t > 0) & (t < length - 1)
        word = tl.load(words + begin + t - 1, mask=is_word, other=0)
        word = tl.where(t == 0, BEGIN, tl.where(t == length - 1, END, word))
        step = start + tl.where(r == 0, t, length - 1 - t)
        at = step * B + slot
        tl.store(layout_words + r * T * B + at, word, mask=inside)
        tl.store(layout_output_rows + r * T * B + at, (begin + t - 1).to(tl.int32), mask=is_word)
        # both directions begin a sentence at the same step
        tl.store(layout_keep + (start + t) * B + slot, (t > 0).to(tl.uint8), mask=inside & (r == 0))


@triton.jit(do_not_specialize=["words_stride"])
def _gather_inputs_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    table, words, rows, words_stride, rows_stride, P, BLOCK: tl.constexpr
):
    row, r = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    word = tl.load(words + r * words_stride + row).to(tl.int64)
    vector = tl.load(table + word * P + cols, mask=inside, other=0.0)
    tl.store(rows + r * rows_stride + row * 2 * P + cols, vector, mask=inside)


@triton.jit(do_not_specialize=["N", "output_rows_stride"])
def _scatter_outputs_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    rows, output_rows, mix, out, layer_stride, rows_stride, output_rows_stride, K, N, P, D,
    LAYERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, r = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    output_row = tl.load(output_rows + r * output_rows_stride + row).to(tl.int64)
    if output_row >= 0:
        for k in range(K):
            mixed = tl.zeros((BLOCK,), tl.float32)
            for layer in tl.static_range(LAYERS):
                weight = tl.load(mix + k * LAYERS + layer)
                if weight != 0.0:
                    source = rows + layer * layer_stride + r * rows_stride + row * 2 * P + cols
                    mixed += weight * tl.load(source, mask=inside, other=0.0).to(tl.float32)
            target = (output_row + k * N) * D + r * P + cols
            tl.store(out + target, mixed.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N"])
def _pool_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    vectors, offsets, pooled, K, N, D, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    s, k = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    cols = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < D
    begin, end = tl.load(offsets + s), tl.load(offsets + s + 1)
    result = tl.zeros((BLOCK,), tl.float32)
    if not MEAN:
        result = tl.full((BLOCK,), float("-inf"), tl.float32)
    for token in range(begin, end):
        vector = tl.load(vectors + (k * N + token) * D + cols, mask=inside, other=0.0).to(tl.float32)
        if MEAN:
            result += vector
        else:
            result = tl.where((vector > result) | (vector != vector), vector, result)  # NaN propagates
    if MEAN:
        result = result / tl.maximum(end - begin, 1).to(tl.float32)
    else:
        result = tl.where(end > begin, result, 0.0)
    tl.store(pooled + (s * K + k) * D + cols, result.to(pooled.dtype.element_ty), mask=inside)
