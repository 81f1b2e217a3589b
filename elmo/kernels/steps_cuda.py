"""A stretch of LSTM steps on CUDA for inference: all layers, both directions, recorded once and replayed.

Twin of `elmo.model.lstm.LSTMStack` where nothing is learned. Each layer reads rows [x; h] in one product a step; what
stands between products is one Triton kernel. Nothing is kept for a gradient: gates live for one step, cells are
updated in place, and h goes where the next step reads it. Sentences stand end to end in a row; where one begins, the
row's state is the initial one again. Shapes: D directions, C steps, R rows, P projection, H cells, L layers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo.kernels.lstm_cuda import tanh

log = logging.getLogger(__name__)

BLOCK = 1024  # cells a program works on
ROWS_AT_ONCE = 16_384  # rows of all steps of a stretch: bounds the memory of layers
LONGEST = 32  # steps of a stretch


@dataclass(frozen=True)
class Layers:
    """Weights of all layers, directions in front: kernels (D, 2P, 4H), biases (D, 4H) float32 with the forget bias
    added, projections (D, H, P) or none. `h` (L, D, P) and `c` (L, D, H) are what sentences start from."""

    kernels: list[Tensor]
    biases: list[Tensor]
    projections: list[Tensor | None]
    h: Tensor
    c: Tensor
    skip: bool
    cell_clip: float | None
    proj_clip: float | None


class Stretch:
    """Buffers for R rows, and the steps over them as CUDA graphs. State is carried from one run to the next.

    The caller fills `rows[0, :, :steps, :, :P]` with token vectors and `keep[:steps]` (0: a sentence begins, or the row
    is idle), runs, and reads layer l from `rows[l, :, :steps, :, :P]`.
    """

    def __init__(self, layers: Layers, num_rows: int, *, record: bool) -> None:
        L, D, P = layers.h.shape
        H = layers.c.shape[2]
        self._layers, self._num_rows = layers, num_rows
        like = layers.h
        self.most_steps = max(4, min(LONGEST, ROWS_AT_ONCE // num_rows))
        self.rows = like.new_zeros(L + 1, D, self.most_steps, num_rows, 2 * P)  # x, then h
        self.keep = torch.zeros(self.most_steps, num_rows, device=like.device, dtype=torch.uint8)
        self._cells = torch.zeros(L, D, num_rows, H, device=like.device)
        self._gates = like.new_empty(D, num_rows, 4 * H)
        self._inner = like.new_empty(D, num_rows, H)  # sigmoid(o) * tanh(c)
        self._hidden = like.new_empty(D, num_rows, P)
        self._record = record and like.is_cuda
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def lengths(self, num_steps: int) -> list[int]:
        """So many steps as stretches of two lengths, for two graphs do for all; up to a quarter stretch too many."""
        short = self.most_steps // 4
        whole, rest = divmod(num_steps, self.most_steps)
        return [self.most_steps] * whole + [short] * -(-rest // short)

    def run(self, steps: int, top: int) -> None:
        """Layers 1 to `top` of the next so many steps."""
        if top == 0:
            return
        graph = self._graph(steps, top) if self._record else None
        if graph is None:
            self._launch(steps, top)
        else:
            graph.replay()

    def _graph(self, steps: int, top: int) -> torch.cuda.CUDAGraph | None:
        if (steps, top) not in self._graphs:
            carried = self._cells.clone(), self.rows[:, :, 0].clone()  # trying out moves the state
            try:
                self._graphs[steps, top] = self._recorded(steps, top)
            except RuntimeError as error:
                log.warning("steps could not be recorded as a CUDA graph and are launched one by one: %s", error)
                self._record = False
                return None
            finally:
                self._cells.copy_(carried[0])
                self.rows[:, :, 0].copy_(carried[1])
        return self._graphs[steps, top]

    def _recorded(self, steps: int, top: int) -> torch.cuda.CUDAGraph:
        device = self.rows.device
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):  # kernels are compiled and libraries set up before anything is recorded
            self._launch(steps, top)
        torch.cuda.current_stream(device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # thread_local: another thread may pin memory meanwhile
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            self._launch(steps, top)
        return graph

    def _launch(self, steps: int, top: int) -> None:
        layers, rows = self._layers, self.rows
        _, D, P = layers.h.shape
        H = layers.c.shape[2]
        R, stride = self._num_rows, rows.stride(1)
        wide = triton.next_power_of_2(P)
        block = min(BLOCK, triton.next_power_of_2(H))
        cell_clip, proj_clip = float(layers.cell_clip or 0.0), float(layers.proj_clip or 0.0)
        _begin_kernel[(top * D * R,)](rows, layers.h, self.keep, rows.stride(0), stride, D, R, P, BLOCK=wide)
        for number in range(top):
            projection = layers.projections[number]
            hidden = self._inner if projection is None else self._hidden
            for t in range(steps):
                last = t + 1 == steps
                torch.bmm(rows[number, :, t], layers.kernels[number], out=self._gates)
                _cell_kernel[(D * R, triton.cdiv(H, block))](
                    self._gates, layers.biases[number], self._cells[number], layers.c[number], self._inner,
                    self.keep[t], R, H, cell_clip, CLIP=cell_clip > 0, BLOCK=block,
                )  # fmt: skip
                if projection is not None:
                    torch.bmm(self._inner, projection, out=self._hidden)
                _finish_kernel[(D * R,)](
                    hidden, rows[number, :, t], rows[number + 1, :, t], rows[number, :, 0 if last else t + 1],
                    layers.h[number], self.keep[t if last else t + 1], stride, R, P, proj_clip,
                    CLIP=proj_clip > 0 and projection is not None, SKIP=layers.skip and number > 0, LAST=last,
                    BLOCK=wide,
                )  # fmt: skip


@triton.jit
def _clipped(x, clip):  # type: ignore[no-untyped-def]  # Triton compiles it
    return tl.where(x > clip, clip, tl.where(x < -clip, -clip, x))  # not a number stays visible


@triton.jit
def _begin_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    rows, first, keep, layer_stride, stride, D, R, P, BLOCK: tl.constexpr
):
    """h of the first step, of all layers: forgotten where a sentence begins."""
    number = tl.program_id(0).to(tl.int64)
    layer, d, r = number // (D * R), number // R % D, number % R
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    if tl.load(keep + r) == 0:
        h = tl.load(first + (layer * D + d) * P + cols, mask=inside, other=0.0)
        tl.store(rows + layer * layer_stride + d * stride + r * 2 * P + P + cols, h, mask=inside)


@triton.jit
def _cell_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    gates, bias, cells, first, inner, keep, R, H, clip, CLIP: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    d, r = row // R, row % R
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < H
    at, b_at = gates + row * 4 * H + cols, bias + d * 4 * H + cols
    i = tl.load(at, mask=inside, other=0.0).to(tl.float32) + tl.load(b_at, mask=inside, other=0.0)
    j = tl.load(at + H, mask=inside, other=0.0).to(tl.float32) + tl.load(b_at + H, mask=inside, other=0.0)
    f = tl.load(at + 2 * H, mask=inside, other=0.0).to(tl.float32) + tl.load(b_at + 2 * H, mask=inside, other=0.0)
    o = tl.load(at + 3 * H, mask=inside, other=0.0).to(tl.float32) + tl.load(b_at + 3 * H, mask=inside, other=0.0)
    if tl.load(keep + r) != 0:
        before = tl.load(cells + row * H + cols, mask=inside, other=0.0)
    else:
        before = tl.load(first + d * H + cols, mask=inside, other=0.0)
    c = tl.sigmoid(f) * before + tl.sigmoid(i) * tanh(j)
    if CLIP:
        c = _clipped(c, clip)
    tl.store(cells + row * H + cols, c, mask=inside)
    tl.store(inner + row * H + cols, (tl.sigmoid(o) * tanh(c)).to(inner.dtype.element_ty), mask=inside)


@triton.jit
def _finish_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    hidden, here, above, following, first, keep, stride, R, P, clip,
    CLIP: tl.constexpr, SKIP: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The clipped output, to where the layer above reads it and to where the next step does."""
    row = tl.program_id(0).to(tl.int64)
    d, r = row // R, row % R
    cols = tl.arange(0, BLOCK)
    inside = cols < P
    at = d * stride + r * 2 * P + cols
    h = tl.load(hidden + row * P + cols, mask=inside, other=0.0)
    if CLIP:
        h = _clipped(h.to(tl.float32), clip).to(hidden.dtype.element_ty)
    if SKIP:
        x = tl.load(here + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(above + at, (h.to(tl.float32) + x).to(hidden.dtype.element_ty), mask=inside)
    else:
        tl.store(above + at, h, mask=inside)
    if not LAST:  # whether the state is kept into the next stretch is the next stretch's business
        h = tl.where(tl.load(keep + r) != 0, h, tl.load(first + d * P + cols, mask=inside, other=0.0))
    tl.store(following + at + P, h, mask=inside)
