"""A stretch of LSTM steps on CUDA for inference: all layers, both directions, recorded once and replayed.

Twin of `elmo.model.lstm.LSTMStack` where nothing is learned. Each layer reads rows [x; h] in one product a step
(`gates_cuda`). Nothing is kept for a gradient: cells are updated in place, and h goes where the next step reads it.
Sentences stand end to end in a row; where one begins, the row's state is the initial one again. Shapes: D directions,
C steps, R rows, P projection, H cells, L layers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo.kernels.cells_cuda import hand_on
from elmo.kernels.gates_cuda import Steps
from elmo.kernels.record import record

log = logging.getLogger(__name__)

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

    @classmethod
    def of(cls, stacks: Any, lstm: Any) -> Layers:  # LSTMStacks and their config; their package may import us
        """Copies of the stacks' weights, and sentences that start from zero."""
        kernels, biases, projections = [], [], []
        for number in range(lstm.num_layers):
            both = [stack.layers[number] for stack in stacks]
            kernels.append(torch.stack([one.kernel.detach() for one in both]))  # (D, 2P, 4H)
            bias = torch.stack([one.bias.detach().float() for one in both])  # (D, 4H)
            bias[:, 2 * lstm.cell_dim : 3 * lstm.cell_dim] += lstm.forget_bias
            biases.append(bias)
            missing = both[0].projection is None
            projections.append(None if missing else torch.stack([one.projection.detach() for one in both]))
        shape, like = (lstm.num_layers, len(stacks)), kernels[0]
        return cls(
            kernels=kernels,
            biases=biases,
            projections=projections,
            h=like.new_zeros(*shape, lstm.proj_dim),
            c=like.new_zeros(*shape, lstm.cell_dim, dtype=torch.float32),
            skip=lstm.skip,
            cell_clip=lstm.cell_clip,
            proj_clip=lstm.proj_clip,
        )


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
        self._inner = like.new_empty(D, num_rows, H)  # sigmoid(o) * tanh(c)
        self._hidden = like.new_empty(D, num_rows, P)
        scratch: list[Tensor] = []
        weights = zip(layers.kernels, layers.biases, strict=True)
        self._steps = [Steps(self.rows[n], *both, scratch=scratch) for n, both in enumerate(weights)]
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
                with torch.cuda.device(self.rows.device):
                    self._graphs[steps, top], _ = record(lambda: self._launch(steps, top))
            except RuntimeError as error:
                log.warning("steps could not be recorded as a CUDA graph and are launched one by one: %s", error)
                self._record = False
                return None
            finally:
                self._cells.copy_(carried[0])
                self.rows[:, :, 0].copy_(carried[1])
        return self._graphs[steps, top]

    def _launch(self, steps: int, top: int) -> None:
        layers, rows = self._layers, self.rows
        _, D, P = layers.h.shape
        keep = self.keep[:, None].expand(-1, D, -1)  # (C, D, R)
        cell_clip, proj_clip = float(layers.cell_clip or 0.0), float(layers.proj_clip or 0.0)
        _begin_kernel[(top * D * self._num_rows,)](
            rows, layers.h, self.keep, rows.stride(0), rows.stride(1), D, self._num_rows, P,
            BLOCK=triton.next_power_of_2(P),
        )  # fmt: skip
        for number in range(top):
            projection, cells = layers.projections[number], self._cells[number]
            for t in range(steps):
                last = t + 1 == steps  # whether h is kept into the next stretch is the next stretch's business
                self._steps[number].step(
                    t, cells, cells, self._inner, None, keep[t], layers.c[number], clip=cell_clip
                )  # fmt: skip
                if projection is not None:
                    torch.bmm(self._inner, projection, out=self._hidden)
                hand_on(
                    self._inner if projection is None else self._hidden,
                    rows[number + 1, :, t, :, :P],
                    rows[number, :, 0 if last else t + 1, :, P:],
                    None if last else keep[t + 1],
                    layers.h[number],
                    clip=0.0 if projection is None else proj_clip,
                    skip=rows[number, :, t, :, :P] if layers.skip and number else None,
                )


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
