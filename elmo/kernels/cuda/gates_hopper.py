"""One LSTM step's gates and cells as one kernel, for Hopper GPUs: the products are used where they are made.

Written in Gluon, the part of Triton that names warps and shared memory. A program goes from tile to tile, 128 rows by
the four gates of some cells, and its warps have three trades, each at work on another tile: one warp loads [x; h] and
weights into a ring of buffers, eight multiply, the others turn the last tile's gates into cells. So products, special
functions and memory are busy at the same time, where a product and a kernel after it take turns.
Shapes: D layers in flight times directions, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from elmo.kernels.cuda.cells_hopper import make_cells, place

ROWS, DEPTH = 128, 64  # of a tile; of what is loaded at once
FEWEST_ROWS = 64  # with fewer, most of a tile is nobody's, and two kernels are as fast
async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # as newer and older Tritons call it
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@dataclass(frozen=True)
class _Tile:
    cells: int  # of a tile, each with four gates
    stages: int  # of the ring: with the tile's gates, what fits into 227 KB
    cell_registers: int  # of threads that make cells; the multiplying ones share what is left
    piece: int  # rows whose cells are made at once where nothing is kept for a gradient
    kept_piece: int  # where it is, which takes more registers


WIDE = _Tile(cells=64, stages=3, cell_registers=64, piece=32, kept_piece=16)
NARROW = _Tile(cells=32, stages=5, cell_registers=104, piece=32, kept_piece=32)
CELL_WARPS, REGISTERS = 8, 96  # warps that make cells; registers of all threads on average
TOGETHER = 4  # cells side by side of one thread
DEEP = 1024  # from this depth on, narrow tiles are as fast as wide ones or faster, however many there are


def fits(rows: Tensor, kernel: Tensor) -> bool:
    """Whether steps over rows (D, T, B, at least 2P) with a kernel (D, 2P, 4H) can be made here."""
    _, depth, num_gates = kernel.shape
    return (
        rows.is_cuda
        and torch.version.hip is None  # AMD's numbers mean other GPUs
        and torch.cuda.get_device_capability(rows.device)[0] == 9
        and rows.dtype in DTYPES
        and rows.shape[2] >= FEWEST_ROWS
        and depth % DEPTH == 0
        and num_gates % (4 * WIDE.cells) == 0
        and rows.shape[2] * num_gates < 2**31  # places of one of D are counted in 32 bits
        and rows.is_contiguous()
        and kernel.is_contiguous()
        and rows.shape[3] % 8 == 0  # loads start at multiples of 16 bytes
        and rows.data_ptr() % 16 == 0
        and kernel.data_ptr() % 16 == 0
    )


class HopperSteps:
    """Steps that read the same rows (D, T, B, at least 2P) with the same kernel (D, 2P, 4H) and bias (D, 4H)."""

    def __init__(self, rows: Tensor, kernel: Tensor, bias: Tensor) -> None:
        self._shape, self._bias = rows.shape, bias
        D, depth, num_gates = kernel.shape
        self._depth, self._cell_dim = depth, num_gates // 4
        self._processors = _processors(rows.device)
        wide_tiles = D * triton.cdiv(rows.shape[2], ROWS) * self._cell_dim // WIDE.cells
        # with a tile each at most, nobody would multiply while cells are made: halves let everybody have two
        self._tile = NARROW if wide_tiles <= self._processors or depth >= DEEP else WIDE
        self._num_tiles = wide_tiles * WIDE.cells // self._tile.cells
        self._rows = _described(rows.view(-1, rows.shape[3]), ROWS)
        self._kernel = _described(kernel.view(-1, num_gates), DEPTH, self._tile.cells)

    def step(
        self,
        t: int,
        before: Tensor,
        after: Tensor,
        inner: Tensor,
        products: Tensor | None,
        keep: Tensor | None,
        first: Tensor | None,
        *,
        clip: float,
        forget_bias: float,
    ) -> None:
        """As `elmo.kernels.cuda.gates.Steps.step` says."""
        T, B = self._shape[1:3]
        tile = self._tile
        _step_kernel[(min(self._num_tiles, self._processors),)](
            self._rows, self._kernel, self._bias, before, after, inner,
            inner if products is None else products, inner if keep is None else keep,
            before if first is None else first,
            before.stride(0), after.stride(0), inner.stride(0), 0 if products is None else products.stride(0),
            0 if keep is None else keep.stride(0), t * B, T * B, self._num_tiles,
            B, self._cell_dim, self._depth, clip or math.inf, forget_bias,
            STORES=products is not None, HAS_KEEP=keep is not None, HAS_FIRST=first is not None,
            CELLS=tile.cells, STAGES=tile.stages, CELL_WARPS=CELL_WARPS, CELL_REGISTERS=tile.cell_registers,
            TOGETHER=TOGETHER, PIECE=tile.piece if products is None else tile.kept_piece,
            num_warps=8, maxnreg=REGISTERS,
        )  # fmt: skip


@functools.cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _described(matrix: Tensor, height: int, width: int = DEPTH) -> TensorDescriptor:
    """A matrix to be loaded in blocks."""
    layout = gl.NVMMASharedLayout.get_default_for([height, width], DTYPES[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, [height, width], layout)


# Triton compiles what follows. Barriers: a ring's buffer is `ready` to be multiplied, then `empty`; the tile's gates
# are `full`, then `free`. A wait names the parity of the round it waits for; the first `empty` and `free` are given.


@gluon.jit(do_not_specialize=["first_row", "stride", "num_tiles"])
def _step_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    rows, kernel, bias, before, after, inner, products, keep, first,
    before_d, after_d, inner_d, products_d, keep_d, first_row, stride, num_tiles,
    B, H, K, clip, forget_bias,
    STORES: gl.constexpr, HAS_KEEP: gl.constexpr, HAS_FIRST: gl.constexpr,
    CELLS: gl.constexpr, STAGES: gl.constexpr, CELL_WARPS: gl.constexpr, CELL_REGISTERS: gl.constexpr,
    TOGETHER: gl.constexpr, PIECE: gl.constexpr,
):  # fmt: skip
    ROWS: gl.constexpr = rows.block_type.shape[0]
    DEPTH: gl.constexpr = rows.block_type.shape[1]
    a = gl.allocate_shared_memory(rows.dtype, [STAGES, ROWS, DEPTH], rows.layout)
    b = gl.allocate_shared_memory(rows.dtype, [STAGES, DEPTH, 4 * CELLS], kernel.layout)
    gates = gl.allocate_shared_memory(rows.dtype, [ROWS, 4 * CELLS], gl.NVMMASharedLayout(128, 16, 2))
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    mbarrier.init(full, count=1)
    mbarrier.init(free, count=1)
    ring = a, b, ready, empty
    handed = gates, full, free
    sizes = num_tiles, B, H
    places = bias, before, after, inner, products, keep, first
    strides = before_d, after_d, inner_d, products_d, keep_d
    values = handed, sizes, places, strides, clip, forget_bias
    gl.warp_specialize(
        [
            (_multiply, (ring, handed, num_tiles, K)),
            (make_cells, (values, STORES, HAS_KEEP, HAS_FIRST, CELLS, TOGETHER, PIECE)),
            (_load, (rows, kernel, ring, sizes, K, first_row, stride)),
        ],
        [CELL_WARPS, 1],
        [CELL_REGISTERS, 24],
    )


@gluon.jit
def _load(rows, kernel, ring, sizes, K, first_row, stride):  # type: ignore[no-untyped-def]  # Triton compiles it
    a, b, ready, empty = ring
    num_tiles, _, H = sizes
    STAGES: gl.constexpr = a.shape[0]
    ROWS: gl.constexpr = a.shape[1]
    DEPTH: gl.constexpr = a.shape[2]
    CELLS: gl.constexpr = b.shape[2] // 4
    count = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        d, m, n = place(tile, sizes, ROWS, CELLS)
        for k in range(0, K, DEPTH):
            stage = count % STAGES
            mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
            bar = ready.index(stage)
            mbarrier.expect(bar, (ROWS + 4 * CELLS) * DEPTH * 2)
            # rows beyond the last are the next step's, or zero: their cells are not stored
            async_load(rows, [first_row + d * stride + m * ROWS, k], bar, a.index(stage))
            for gate in gl.static_range(4):
                to = b.index(stage).slice(gate * CELLS, CELLS, dim=1)
                async_load(kernel, [d * K + k, gate * H + n * CELLS], bar, to)
            count += 1


@gluon.jit
def _multiply(ring, handed, num_tiles, K):  # type: ignore[no-untyped-def]  # Triton compiles it
    a, b, ready, empty = ring
    gates, full, free = handed
    STAGES: gl.constexpr = a.shape[0]
    ROWS: gl.constexpr = a.shape[1]
    DEPTH: gl.constexpr = a.shape[2]
    WIDTH: gl.constexpr = b.shape[2]
    # instructions 128 wide: narrower ones would read more from shared memory than it can give
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8 * 128 // WIDTH, WIDTH // 128], [16, 128, 16])
    total = gl.zeros([ROWS, WIDTH], gl.float32, layout=layout)
    count = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        for k in range(0, K, DEPTH):
            stage = count % STAGES
            mbarrier.wait(ready.index(stage), count // STAGES & 1)
            total = warpgroup_mma(a.index(stage), b.index(stage), total, use_acc=k > 0, is_async=True)
            total = warpgroup_mma_wait(1, (total,))  # the product before has been made, so its buffer is empty
            mbarrier.arrive(empty.index((count + STAGES - 1) % STAGES), count=1, pred=k > 0)
            count += 1
        total = warpgroup_mma_wait(0, (total,))
        mbarrier.arrive(empty.index((count + STAGES - 1) % STAGES), count=1)
        mbarrier.wait(free, (tile // gl.num_programs(0) & 1) ^ 1)
        gates.store(total.to(gates.dtype))
        mbarrier.arrive(full, count=1)
