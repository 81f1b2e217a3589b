"""The cell part of the fused Hopper kernel (`gates_hopper`): dedicated warps turn the gates of a tile into cells.

All functions here are compiled by Triton. Shapes: LR = active layers * directions, B rows, H cells. In the kernels, lr
is an index of LR, and `x_lr` is the stride of a tensor x along LR.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def compute_cells(  # type: ignore[no-untyped-def]  # Triton compiles it
    values,
    STORE_PRODUCTS: gl.constexpr, HAS_KEEP: gl.constexpr, HAS_INITIAL: gl.constexpr,
    TILE_CELLS: gl.constexpr, THREAD_CELLS: gl.constexpr, PIECE_ROWS: gl.constexpr,
):  # fmt: skip
    gate_buffer, sizes, pointers, strides, clip, forget_bias = values
    gates, full, free = gate_buffer
    num_tiles, B, H = sizes
    bias, before, after, inner, products, keep, initial = pointers
    before_lr, after_lr, inner_lr, products_lr, keep_lr = strides
    TILE_ROWS: gl.constexpr = gates.shape[0]
    NUM_PIECES: gl.constexpr = TILE_ROWS // PIECE_ROWS
    layout: gl.constexpr = gl.BlockedLayout(
        [1, THREAD_CELLS], [32 * THREAD_CELLS // TILE_CELLS, TILE_CELLS // THREAD_CELLS], [gl.num_warps(), 1], [1, 0]
    )
    row = gl.arange(0, PIECE_ROWS, layout=gl.SliceLayout(1, layout))
    cell = gl.arange(0, TILE_CELLS, layout=gl.SliceLayout(0, layout))
    lr, m, n = tile_position(gl.program_id(0), sizes, TILE_ROWS, TILE_CELLS)
    if STORE_PRODUCTS:  # the buffers of all steps, layers and directions exceed 32-bit indices
        lr = lr.to(gl.int64)
    sources = before + lr * before_lr, keep + lr * keep_lr
    c, kept = _load_cells(sources, m * TILE_ROWS + row, n * TILE_CELLS + cell, B, H, True, HAS_KEEP)
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        lr, m, n = tile_position(tile, sizes, TILE_ROWS, TILE_CELLS)
        if STORE_PRODUCTS:
            lr = lr.to(gl.int64)
        col = n * TILE_CELLS + cell
        b_i = gl.load(bias + lr * 4 * H + col)
        b_j = gl.load(bias + lr * 4 * H + H + col)
        b_f = gl.load(bias + lr * 4 * H + 2 * H + col)
        b_o = gl.load(bias + lr * 4 * H + 3 * H + col)
        if HAS_INITIAL:
            start = gl.load(initial + lr * H + col)
        mbarrier.wait(full, tile // gl.num_programs(0) & 1)
        for piece in gl.static_range(NUM_PIECES):
            # prefetch the cells of the next piece while this one is computed
            if piece + 1 < NUM_PIECES:
                sources = before + lr * before_lr, keep + lr * keep_lr
                next_c, next_kept = _load_cells(
                    sources, m * TILE_ROWS + (piece + 1) * PIECE_ROWS + row, col, B, H, True, HAS_KEEP
                )
            else:
                next_tile = tile + gl.num_programs(0)
                next_lr, next_m, next_n = tile_position(next_tile, sizes, TILE_ROWS, TILE_CELLS)
                if STORE_PRODUCTS:
                    next_lr = next_lr.to(gl.int64)
                sources = before + next_lr * before_lr, keep + next_lr * keep_lr
                next_r, next_col = next_m * TILE_ROWS + row, next_n * TILE_CELLS + cell
                next_c, next_kept = _load_cells(sources, next_r, next_col, B, H, next_tile < num_tiles, HAS_KEEP)
            part = gates.slice(piece * PIECE_ROWS, PIECE_ROWS, dim=0)
            i = part.slice(0, TILE_CELLS, dim=1).load(layout)
            j = part.slice(TILE_CELLS, TILE_CELLS, dim=1).load(layout)
            f = part.slice(2 * TILE_CELLS, TILE_CELLS, dim=1).load(layout)
            o = part.slice(3 * TILE_CELLS, TILE_CELLS, dim=1).load(layout)
            if piece + 1 == NUM_PIECES:
                mbarrier.arrive(free, count=1)
            r = m * TILE_ROWS + piece * PIECE_ROWS + row
            inside = (r < B)[:, None] & (col < H)[None, :]
            if STORE_PRODUCTS:
                target = products + lr * products_lr + (r[:, None] * 4 * H + col[None, :])
                gl.store(target, i, mask=inside)
                gl.store(target + H, j, mask=inside)
                gl.store(target + 2 * H, f, mask=inside)
                gl.store(target + 3 * H, o, mask=inside)
            if HAS_KEEP:
                if HAS_INITIAL:
                    c = gl.where((kept != 0)[:, None], c, start[None, :])
                else:
                    c = gl.where((kept != 0)[:, None], c, 0.0)
            c = _sigmoid(_add_bias(f, b_f) + forget_bias) * c + _sigmoid(_add_bias(i, b_i)) * _tanh(_add_bias(j, b_j))
            c = gl.where(c > clip, clip, gl.where(c < -clip, -clip, c))  # NaN propagates
            at = r[:, None] * H + col[None, :]
            gl.store(after + lr * after_lr + at, c, mask=inside)
            gl.store(inner + lr * inner_lr + at, (_sigmoid(_add_bias(o, b_o)) * _tanh(c)).to(gates.dtype), mask=inside)
            c, kept = next_c, next_kept


@gluon.jit
def tile_position(  # type: ignore[no-untyped-def]  # Triton compiles it
    tile, sizes, TILE_ROWS: gl.constexpr, TILE_CELLS: gl.constexpr
):
    """The lr of a tile and its block numbers along rows and cells; rows vary fastest, so that weights stay cached."""
    _, B, H = sizes
    num_m, num_n = gl.cdiv(B, TILE_ROWS), H // TILE_CELLS
    return tile // num_m // num_n, tile % num_m, tile // num_m % num_n


@gluon.jit
def _load_cells(  # type: ignore[no-untyped-def]  # Triton compiles it
    sources, r, col, B, H, is_valid, HAS_KEEP: gl.constexpr
):
    """The cells before the step, and the keep mask of their rows."""
    before, keep = sources
    row_mask = (r < B) & is_valid
    c = gl.load(before + (r[:, None] * H + col[None, :]), mask=row_mask[:, None] & (col < H)[None, :], other=0.0)
    kept = r
    if HAS_KEEP:
        kept = gl.load(keep + r, mask=row_mask, other=0)
    return c, kept


@gluon.jit
def _add_bias(gate, bias):  # type: ignore[no-untyped-def]  # Triton compiles it
    return gate.to(gl.float32) + bias.to(gl.float32)[None, :]


@gluon.jit
def _sigmoid(x):  # type: ignore[no-untyped-def]  # Triton compiles it
    # four instructions with an error of at most 1e-7; the compiler's own division takes twice as many
    return gl.inline_asm_elementwise(
        """{
        .reg .f32 t;
        mul.f32 t, $1, 0fBFB8AA3B;
        ex2.approx.ftz.f32 t, t;
        add.f32 t, t, 0f3F800000;
        rcp.approx.ftz.f32 $0, t;
        }""",
        "=f,f",
        [x],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def _tanh(x):  # type: ignore[no-untyped-def]  # Triton compiles it
    return 2.0 * _sigmoid(2.0 * x) - 1.0
