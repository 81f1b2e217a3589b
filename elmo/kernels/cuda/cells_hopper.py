"""What becomes of a tile's gates on a Hopper GPU: cells, by warps that do nothing else (`gates_hopper`).

Triton compiles all of it. Shapes: D layers in flight times directions, B rows, H cells.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def make_cells(  # type: ignore[no-untyped-def]  # Triton compiles it
    values,
    STORES: gl.constexpr, HAS_KEEP: gl.constexpr, HAS_FIRST: gl.constexpr,
    CELLS: gl.constexpr, TOGETHER: gl.constexpr, PIECE: gl.constexpr,
):  # fmt: skip
    handed, sizes, places, strides, clip, forget_bias = values
    gates, full, free = handed
    num_tiles, B, H = sizes
    bias, before, after, inner, products, keep, first = places
    before_d, after_d, inner_d, products_d, keep_d = strides
    ROWS: gl.constexpr = gates.shape[0]
    PIECES: gl.constexpr = ROWS // PIECE
    layout: gl.constexpr = gl.BlockedLayout(
        [1, TOGETHER], [32 * TOGETHER // CELLS, CELLS // TOGETHER], [gl.num_warps(), 1], [1, 0]
    )
    row = gl.arange(0, PIECE, layout=gl.SliceLayout(1, layout))
    cell = gl.arange(0, CELLS, layout=gl.SliceLayout(0, layout))
    d, m, n = place(gl.program_id(0), sizes, ROWS, CELLS)
    if STORES:  # buffers of all steps, of all layers and directions, are more than 32 bits count
        d = d.to(gl.int64)
    read = before + d * before_d, keep + d * keep_d
    c, stays = _read(read, m * ROWS + row, n * CELLS + cell, B, H, True, HAS_KEEP)
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        d, m, n = place(tile, sizes, ROWS, CELLS)
        if STORES:
            d = d.to(gl.int64)
        col = n * CELLS + cell
        b_i = gl.load(bias + d * 4 * H + col)
        b_j = gl.load(bias + d * 4 * H + H + col)
        b_f = gl.load(bias + d * 4 * H + 2 * H + col)
        b_o = gl.load(bias + d * 4 * H + 3 * H + col)
        if HAS_FIRST:
            start = gl.load(first + d * H + col)
        mbarrier.wait(full, tile // gl.num_programs(0) & 1)
        for piece in gl.static_range(PIECES):
            # what the next piece starts from is on its way while this one is made
            if piece + 1 < PIECES:
                read = before + d * before_d, keep + d * keep_d
                c_later, stays_later = _read(read, m * ROWS + (piece + 1) * PIECE + row, col, B, H, True, HAS_KEEP)
            else:
                later = tile + gl.num_programs(0)
                d_later, m_later, n_later = place(later, sizes, ROWS, CELLS)
                if STORES:
                    d_later = d_later.to(gl.int64)
                read = before + d_later * before_d, keep + d_later * keep_d
                r_later, col_later = m_later * ROWS + row, n_later * CELLS + cell
                c_later, stays_later = _read(read, r_later, col_later, B, H, later < num_tiles, HAS_KEEP)
            part = gates.slice(piece * PIECE, PIECE, dim=0)
            i = part.slice(0, CELLS, dim=1).load(layout)
            j = part.slice(CELLS, CELLS, dim=1).load(layout)
            f = part.slice(2 * CELLS, CELLS, dim=1).load(layout)
            o = part.slice(3 * CELLS, CELLS, dim=1).load(layout)
            if piece + 1 == PIECES:
                mbarrier.arrive(free, count=1)
            r = m * ROWS + piece * PIECE + row
            inside = (r < B)[:, None] & (col < H)[None, :]
            if STORES:
                to = products + d * products_d + (r[:, None] * 4 * H + col[None, :])
                gl.store(to, i, mask=inside)
                gl.store(to + H, j, mask=inside)
                gl.store(to + 2 * H, f, mask=inside)
                gl.store(to + 3 * H, o, mask=inside)
            if HAS_KEEP:
                if HAS_FIRST:
                    c = gl.where((stays != 0)[:, None], c, start[None, :])
                else:
                    c = gl.where((stays != 0)[:, None], c, 0.0)
            c = _sigmoid(_biased(f, b_f) + forget_bias) * c + _sigmoid(_biased(i, b_i)) * _tanh(_biased(j, b_j))
            c = gl.where(c > clip, clip, gl.where(c < -clip, -clip, c))  # not a number stays visible
            at = r[:, None] * H + col[None, :]
            gl.store(after + d * after_d + at, c, mask=inside)
            gl.store(inner + d * inner_d + at, (_sigmoid(_biased(o, b_o)) * _tanh(c)).to(gates.dtype), mask=inside)
            c, stays = c_later, stays_later


@gluon.jit
def place(tile, sizes, ROWS: gl.constexpr, CELLS: gl.constexpr):  # type: ignore[no-untyped-def]  # Triton compiles it
    """Direction, and numbers of a tile's rows and cells: rows vary first, so that weights are read while cached."""
    _, B, H = sizes
    num_m, num_n = gl.cdiv(B, ROWS), H // CELLS
    return tile // num_m // num_n, tile % num_m, tile // num_m % num_n


@gluon.jit
def _read(read, r, col, B, H, there, HAS_KEEP: gl.constexpr):  # type: ignore[no-untyped-def]  # Triton compiles it
    """Cells before the step, and whether their rows keep them."""
    before, keep = read
    here = (r < B) & there
    c = gl.load(before + (r[:, None] * H + col[None, :]), mask=here[:, None] & (col < H)[None, :], other=0.0)
    stays = r
    if HAS_KEEP:
        stays = gl.load(keep + r, mask=here, other=0)
    return c, stays


@gluon.jit
def _biased(gate, bias):  # type: ignore[no-untyped-def]  # Triton compiles it
    return gate.to(gl.float32) + bias.to(gl.float32)[None, :]


@gluon.jit
def _sigmoid(x):  # type: ignore[no-untyped-def]  # Triton compiles it
    # four instructions, right to 1e-7 of 1; the compiler's own division takes twice as many
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
