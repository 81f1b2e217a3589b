"""A stretch of LSTM steps on CUDA for inference: all layers, both directions, recorded once and replayed.

Twin of `elmo.model.lstm.LSTMStack` where nothing is learned. Layers are in flight (`flight`) and read rows [x; h]
(`gates_cuda`). Nothing is kept for a gradient: cells are updated in place, and h goes where the next step reads it.
Sentences stand end to end in a row; where one begins, the row's state is the initial one again. Shapes: D directions,
C steps, R rows, P projection, H cells, L layers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elmo.kernels.cuda.cells import hand_on
from elmo.kernels.cuda.gates import Steps
from elmo.kernels.cuda.graphs import capture_graph
from elmo.kernels.cuda.wavefront import by_step, waves

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 16_384  # rows of all steps of a stretch: bounds the memory of layers
LONGEST = 32  # steps of a stretch


@dataclass(frozen=True)
class Layers:
    """Weights, layer after layer: kernels (L*D, 2P, 4H), biases (L*D, 4H) float32 with the forget bias added,
    projections (L*D, H, P) or none. `h` (L, D, P) and `c` (L, D, H) are what sentences start from."""

    kernels: Tensor
    biases: Tensor
    projections: Tensor | None
    h: Tensor
    c: Tensor
    skip: bool
    cell_clip: float | None
    proj_clip: float | None

    @classmethod
    def of(cls, stacks: Any, lstm: Any) -> Layers:  # LSTMStacks and their config; their package may import us
        """Copies of the stacks' weights, and sentences that start from zero."""

        layers = [stack.layers[number] for number in range(lstm.num_layers) for stack in stacks]

        def copies(name: str) -> Tensor:
            return torch.stack([getattr(layer, name).detach() for layer in layers])  # (L*D, ...)

        kernels, biases = copies("kernel"), copies("bias").float()
        biases[:, 2 * lstm.cell_dim : 3 * lstm.cell_dim] += lstm.forget_bias
        shape = lstm.num_layers, len(stacks)
        return cls(
            kernels=kernels,
            biases=biases,
            projections=None if layers[0].projection is None else copies("projection"),
            h=kernels.new_zeros(*shape, lstm.proj_dim),
            c=kernels.new_zeros(*shape, lstm.cell_dim, dtype=torch.float32),
            skip=lstm.skip,
            cell_clip=lstm.cell_clip,
            proj_clip=lstm.proj_clip,
        )


class Stretch:
    """Buffers for R rows, and the steps over them as CUDA graphs. State is carried from one run to the next.

    The caller fills `layers[0, :, :steps, :, :P]` with token vectors and `keep[:, :, : steps + 1]` (0: a sentence
    begins, or the row is idle) of these steps and the one after, runs, and reads layer l from
    `layers[l, :, :steps, :, :P]`. Before the first steps of a text it calls `start`.
    """

    def __init__(self, layers: Layers, num_rows: int, *, use_graphs: bool) -> None:
        L, D, P = layers.h.shape
        H = layers.c.shape[2]
        self._weights = layers
        like = layers.h
        self.most_steps = max(4, min(LONGEST, ROWS_AT_ONCE // num_rows))
        places = L + self.most_steps + 1
        self._rows = like.new_zeros((L + 1) * D, places, num_rows, 2 * P)  # x, then h
        self._keep = torch.zeros(L * D, places, num_rows, device=like.device, dtype=torch.uint8)
        self.layers = by_step(self._rows, D, self.most_steps + 1)  # (L + 1, D, C + 1, R, 2P)
        self.keep = by_step(self._keep, D, self.most_steps + 1)  # (L, D, C + 1, R)
        self._cells = torch.zeros(L * D, num_rows, H, device=like.device)
        self._inner = like.new_empty(L * D, num_rows, H)  # sigmoid(o) * tanh(c)
        self._hidden = like.new_empty(L * D, num_rows, P)
        self._steps = Steps(self._rows[: L * D], layers.kernels, layers.biases)
        self._use_graphs = use_graphs and like.is_cuda
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def lengths(self, num_steps: int) -> list[int]:
        """So many steps as stretches of two lengths, for two graphs do for all; up to a quarter stretch too many."""
        short = self.most_steps // 4
        whole, rest = divmod(num_steps, self.most_steps)
        return [self.most_steps] * whole + [short] * -(-rest // short)

    def start(self) -> None:
        """All rows are at a sentence's begin."""
        h = self._weights.h
        self.layers[: len(h), :, 0, :, h.shape[2] :] = h[:, :, None]

    def run(self, steps: int, top: int) -> None:
        """Layers 1 to `top` of the next so many steps."""
        if top == 0:
            return
        graph = self._graph(steps, top) if self._use_graphs else None
        if graph is None:
            self._launch(steps, top)
        else:
            graph.replay()

    def _graph(self, steps: int, top: int) -> torch.cuda.CUDAGraph | None:
        if (steps, top) not in self._graphs:
            carried = self._cells.clone(), self.layers[:, :, 0].clone()  # trying out moves the state
            try:
                with torch.cuda.device(self._rows.device):
                    self._graphs[steps, top], _ = capture_graph(lambda: self._launch(steps, top))
            except RuntimeError as error:
                log.warning("steps could not be recorded as a CUDA graph and are launched one by one: %s", error)
                self._use_graphs = False
                return None
            finally:
                self._cells.copy_(carried[0])
                self.layers[:, :, 0].copy_(carried[1])
        return self._graphs[steps, top]

    def _launch(self, steps: int, top: int) -> None:
        _, D, P = self._weights.h.shape
        for place, these, above in waves(steps, top, D):
            self._fly(place, these, above)
        self.layers[:top, :, 0, :, P:] = self.layers[:top, :, steps, :, P:]

    def _fly(self, place: int, these: slice, above: slice) -> None:
        """One step of each of these."""
        weights, rows = self._weights, self._rows
        _, D, P = weights.h.shape
        cells, inner, hidden = self._cells[these], self._inner[these], self._hidden[these]
        keep, first_h, first_c = self._keep[these], weights.h.flatten(0, 1)[these], weights.c.flatten(0, 1)[these]
        self._steps.step(
            place, cells, cells, inner, None, keep[:, place], first_c, these=these, clip=float(weights.cell_clip or 0.0)
        )
        if weights.projections is None:
            hidden, clip = inner, 0.0
        else:
            torch.bmm(inner, weights.projections[these], out=hidden)
            clip = float(weights.proj_clip or 0.0)
        hand_on(
            hidden,
            rows[above, place + 1, :, :P],
            rows[these, place + 1, :, P:],
            keep[:, place + 1],
            first_h,
            clip=clip,
            skip=rows[these, place, :, :P] if weights.skip else None,
            unskipped=max(0, D - these.start),  # what the first layer reads is not added to what it gives
        )
