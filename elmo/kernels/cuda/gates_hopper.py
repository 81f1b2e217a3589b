"""One fused kernel for the gates and cells of an LSTM step on Hopper GPUs: the gates stay in shared memory.

The kernel is written in Gluon, the part of Triton that exposes warps and shared memory. A program processes one tile
after another; a tile is 128 rows by the four gates of some cells. The warps are specialised, each group on a different
tile: one warp loads [x; h] and weights into a ring of buffers, eight warps multiply, and the others turn the gates of
the previous tile into cells (`cells_hopper`). Tensor cores, special functions and memory are thus busy at the same
time, whereas two kernels would use them one after the other.
Shapes: LR = layers * directions of the wavefront, T steps, B rows, P projection, H cells.
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

from elmo.kernels.cuda.cells_hopper import compute_cells, tile_position

TILE_ROWS, TILE_DEPTH = 128, 64  # rows of a tile; columns of [x; h] per load
MIN_ROWS = 64  # with fewer rows most of a tile is empty, and two kernels are as fast
async_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # names in newer and older Tritons
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@dataclass(frozen=True)
class _Tile:
    cells: int  # cells per tile, each with four gates
    stages: int  # buffers of the ring: as many as fit into 227 KB next to the tile's gates
    cell_registers: int  # registers per thread of the cell warps; the multiplying warps share the rest
    piece_rows: int  # rows whose cells are computed at once in inference
    training_piece_rows: int  # the same in training, where products are stored, which takes more registers


WIDE = _Tile(cells=64, stages=3, cell_registers=64, piece_rows=32, training_piece_rows=16)
NARROW = _Tile(cells=32, stages=5, cell_registers=104, piece_rows=32, training_piece_rows=32)
CELL_WARPS, REGISTERS = 8, 96  # warps that compute cells; average number of registers per thread
THREAD_CELLS = 4  # adjacent cells per thread
NARROW_DEPTH = 1024  # from this depth on, narrow tiles are at least as fast as wide ones, for any number of tiles


def is_supported(rows: Tensor, kernel: Tensor) -> bool:
    """Whether the fused kernel can run steps over rows (LR, T, B, >= 2P) with a kernel matrix (LR, 2P, 4H) here."""
    _, depth, num_gates = kernel.shape
    return (
        rows.is_cuda
        and torch.version.hip is None  # on AMD, capability numbers mean other GPUs
        and torch.cuda.get_device_capability(rows.device)[0] == 9
        and rows.dtype in DTYPES
        and rows.shape[2] >= MIN_ROWS
        and depth % TILE_DEPTH == 0
        and num_gates % (4 * WIDE.cells) == 0
        and rows.shape[2] * num_gates < 2**31  # within one lr, indices have 32 bits
        and rows.is_contiguous()
        and kernel.is_contiguous()
        and rows.shape[3] % 8 == 0  # loads start at multiples of 16 bytes
        and rows.data_ptr() % 16 == 0
        and kernel.data_ptr() % 16 == 0
    )


class HopperStepLauncher:
    """Launches steps that read rows [x; h] (LR, T, B, >= 2P) with one kernel matrix (LR, 2P, 4H) and bias (LR, 4H)."""

    def __init__(self, rows: Tensor, kernel: Tensor, bias: Tensor) -> None:
        self._shape, self._bias = rows.shape, bias
        LR, depth, num_gates = kernel.shape
        self._depth, self._cell_dim = depth, num_gates // 4
        self._num_processors = _num_processors(rows.device)
        wide_tiles = LR * triton.cdiv(rows.shape[2], TILE_ROWS) * self._cell_dim // WIDE.cells
        # With at most one tile per processor, no warp could multiply while cells are computed: halves give it two.
        self._tile = NARROW if wide_tiles <= self._num_processors or depth >= NARROW_DEPTH else WIDE
        self._num_tiles = wide_tiles * WIDE.cells // self._tile.cells
        self._rows = _tensor_descriptor(rows.view(-1, rows.shape[3]), TILE_ROWS)
        self._kernel = _tensor_descriptor(kernel.view(-1, num_gates), TILE_DEPTH, self._tile.cells)

    def step(
        self,
        t: int,
        before: Tensor,
        after: Tensor,
        inner: Tensor,
        products: Tensor | None,
        keep: Tensor | None,
        initial: Tensor | None,
        *,
        clip: float,
        forget_bias: float,
    ) -> None:
        """Computes the same as `elmo.kernels.cuda.gates.StepLauncher.step`."""
        T, B = self._shape[1:3]
        tile = self._tile
        _step_kernel[(min(self._num_tiles, self._num_processors),)](
            self._rows, self._kernel, self._bias, before, after, inner,
            inner if products is None else products, inner if keep is None else keep,
            before if initial is None else initial,
            before.stride(0), after.stride(0), inner.stride(0), 0 if products is None else products.stride(0),
            0 if keep is None else keep.stride(0), t * B, T * B, self._num_tiles,
            B, self._cell_dim, self._depth, clip or math.inf, forget_bias,
            STORE_PRODUCTS=products is not None, HAS_KEEP=keep is not None, HAS_INITIAL=initial is not None,
            TILE_CELLS=tile.cells, STAGES=tile.stages, CELL_WARPS=CELL_WARPS, CELL_REGISTERS=tile.cell_registers,
            THREAD_CELLS=THREAD_CELLS, PIECE_ROWS=tile.piece_rows if products is None else tile.training_piece_rows,
            num_warps=8, maxnreg=REGISTERS,
        )  # fmt: skip


@functools.cache
def _num_processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _tensor_descriptor(matrix: Tensor, height: int, width: int = TILE_DEPTH) -> TensorDescriptor:
    """The TMA descriptor of a matrix that is loaded in blocks of height x width."""
    layout = gl.NVMMASharedLayout.get_default_for([height, width], DTYPES[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, [height, width], layout)


# The functions below are compiled by Triton. Barriers: a buffer of the ring is `ready` to be multiplied, then `empty`;
# the tile's gates are `full`, then `free`. A wait names the parity of the round it waits for; the first waits for
# `empty` and `free` pass at once. `depth` is the number of columns of [x; h]; `x_lr` is the stride of x along LR.


@gluon.jit(do_not_specialize=["first_row", "rows_lr", "num_tiles"])
def _step_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    rows, kernel, bias, before, after, inner, products, keep, initial,
    before_lr, after_lr, inner_lr, products_lr, keep_lr, first_row, rows_lr, num_tiles,
    B, H, depth, clip, forget_bias,
    STORE_PRODUCTS: gl.constexpr, HAS_KEEP: gl.constexpr, HAS_INITIAL: gl.constexpr,
    TILE_CELLS: gl.constexpr, STAGES: gl.constexpr, CELL_WARPS: gl.constexpr, CELL_REGISTERS: gl.constexpr,
    THREAD_CELLS: gl.constexpr, PIECE_ROWS: gl.constexpr,
):  # fmt: skip
    TILE_ROWS: gl.constexpr = rows.block_type.shape[0]
    TILE_DEPTH: gl.constexpr = rows.block_type.shape[1]
    a = gl.allocate_shared_memory(rows.dtype, [STAGES, TILE_ROWS, TILE_DEPTH], rows.layout)
    b = gl.allocate_shared_memory(rows.dtype, [STAGES, TILE_DEPTH, 4 * TILE_CELLS], kernel.layout)
    gates = gl.allocate_shared_memory(rows.dtype, [TILE_ROWS, 4 * TILE_CELLS], gl.NVMMASharedLayout(128, 16, 2))
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
    gate_buffer = gates, full, free
    sizes = num_tiles, B, H
    pointers = bias, before, after, inner, products, keep, initial
    strides = before_lr, after_lr, inner_lr, products_lr, keep_lr
    values = gate_buffer, sizes, pointers, strides, clip, forget_bias
    gl.warp_specialize(
        [
            (_multiply, (ring, gate_buffer, num_tiles, depth)),
            (compute_cells, (values, STORE_PRODUCTS, HAS_KEEP, HAS_INITIAL, TILE_CELLS, THREAD_CELLS, PIECE_ROWS)),
            (_load, (rows, kernel, ring, sizes, depth, first_row, rows_lr)),
        ],
        [CELL_WARPS, 1],
        [CELL_REGISTERS, 24],
    )


@gluon.jit
def _load(rows, kernel, ring, sizes, depth, first_row, rows_lr):  # type: ignore[no-untyped-def]  # Triton compiles it
    a, b, ready, empty = ring
    num_tiles, _, H = sizes
    STAGES: gl.constexpr = a.shape[0]
    TILE_ROWS: gl.constexpr = a.shape[1]
    TILE_DEPTH: gl.constexpr = a.shape[2]
    TILE_CELLS: gl.constexpr = b.shape[2] // 4
    count = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        lr, m, n = tile_position(tile, sizes, TILE_ROWS, TILE_CELLS)
        for k in range(0, depth, TILE_DEPTH):
            stage = count % STAGES
            mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
            barrier = ready.index(stage)
            mbarrier.expect(barrier, (TILE_ROWS + 4 * TILE_CELLS) * TILE_DEPTH * 2)
            # rows beyond the last belong to the next step or are zero: their cells are not stored
            async_load(rows, [first_row + lr * rows_lr + m * TILE_ROWS, k], barrier, a.index(stage))
            for gate in gl.static_range(4):
                target = b.index(stage).slice(gate * TILE_CELLS, TILE_CELLS, dim=1)
                async_load(kernel, [lr * depth + k, gate * H + n * TILE_CELLS], barrier, target)
            count += 1


@gluon.jit
def _multiply(ring, gate_buffer, num_tiles, depth):  # type: ignore[no-untyped-def]  # Triton compiles it
    a, b, ready, empty = ring
    gates, full, free = gate_buffer
    STAGES: gl.constexpr = a.shape[0]
    TILE_ROWS: gl.constexpr = a.shape[1]
    TILE_DEPTH: gl.constexpr = a.shape[2]
    TILE_GATES: gl.constexpr = b.shape[2]
    # instructions are 128 wide: narrower ones would need more bandwidth of shared memory than there is
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8 * 128 // TILE_GATES, TILE_GATES // 128], [16, 128, 16])
    total = gl.zeros([TILE_ROWS, TILE_GATES], gl.float32, layout=layout)
    count = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        for k in range(0, depth, TILE_DEPTH):
            stage = count % STAGES
            mbarrier.wait(ready.index(stage), count // STAGES & 1)
            total = warpgroup_mma(a.index(stage), b.index(stage), total, use_acc=k > 0, is_async=True)
            total = warpgroup_mma_wait(1, (total,))  # the previous product is done, so its buffer is empty
            mbarrier.arrive(empty.index((count + STAGES - 1) % STAGES), count=1, pred=k > 0)
            count += 1
        total = warpgroup_mma_wait(0, (total,))
        mbarrier.arrive(empty.index((count + STAGES - 1) % STAGES), count=1)
        mbarrier.wait(free, (tile // gl.num_programs(0) & 1) ^ 1)
        gates.store(total.to(gates.dtype))
        mbarrier.arrive(full, count=1)
