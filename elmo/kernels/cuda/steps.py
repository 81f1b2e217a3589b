"""Chunks of LSTM steps on CUDA for inference: all layers and both directions, captured as CUDA graphs and replayed.

This is the fast implementation of `elmo.model.lstm.LSTMStack` for inference. It runs a wavefront over the layers
(`wavefront`), and its steps read rows [x; h] (`gates`). Nothing is stored for a backward pass: cells are updated in
place, and h is written to the input of the next step. Several sentences follow each other in one row; where a sentence
begins, the row's state is reset to the initial one.
Shapes: L layers, R directions, LR = L * R, T steps of a chunk, B rows, P projection, H cells.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elmo.kernels.cuda.cells import output_forward
from elmo.kernels.cuda.gates import StepLauncher
from elmo.kernels.cuda.graphs import capture_graph
from elmo.kernels.cuda.wavefront import view_by_step, wavefront

log = logging.getLogger(__name__)

MAX_CHUNK_ROWS = 16_384  # rows of all steps of a chunk: bounds the memory of the layers
MAX_CHUNK_STEPS = 32


@dataclass(frozen=True)
class LayerWeights:
    """Weights of all layers and directions, and the state that every sentence starts from.

    kernels (LR, 2P, 4H), biases (LR, 4H) float32 with the forget bias added, projections (LR, H, P) or None; the
    initial state h (L, R, P) and c (L, R, H).
    """

    kernels: Tensor
    biases: Tensor
    projections: Tensor | None
    h: Tensor
    c: Tensor
    skip: bool
    cell_clip: float | None
    proj_clip: float | None

    @classmethod
    def from_stacks(cls, stacks: Any, lstm: Any) -> LayerWeights:  # Any: elmo.model imports us
        """Copies of the weights of LSTMStacks with their LSTMConfig; the initial state is zero."""

        layers = [stack.layers[number] for number in range(lstm.num_layers) for stack in stacks]

        def stacked(name: str) -> Tensor:
            return torch.stack([getattr(layer, name).detach() for layer in layers])  # (LR, ...)

        kernels, biases = stacked("kernel"), stacked("bias").float()
        biases[:, 2 * lstm.cell_dim : 3 * lstm.cell_dim] += lstm.forget_bias
        shape = lstm.num_layers, len(stacks)
        return cls(
            kernels=kernels,
            biases=biases,
            projections=None if layers[0].projection is None else stacked("projection"),
            h=kernels.new_zeros(*shape, lstm.proj_dim),
            c=kernels.new_zeros(*shape, lstm.cell_dim, dtype=torch.float32),
            skip=lstm.skip,
            cell_clip=lstm.cell_clip,
            proj_clip=lstm.proj_clip,
        )


class ChunkRunner:
    """Buffers for B rows, and CUDA graphs of the steps over them. The state is carried from one chunk to the next.

    Before the first chunk of a text the caller calls `start`. For each chunk of n steps it fills
    `layers[0, :, :n, :, :P]` with token vectors and `keep[:, :, : n + 1]` (0: a sentence begins, or the row is idle)
    for these steps and the one after, calls `run`, and reads layer l from `layers[l, :, :n, :, :P]`.
    """

    def __init__(self, weights: LayerWeights, num_rows: int, *, use_graphs: bool) -> None:
        L, R, P = weights.h.shape
        H = weights.c.shape[2]
        self._weights = weights
        like = weights.h
        self.max_steps = max(4, min(MAX_CHUNK_STEPS, MAX_CHUNK_ROWS // num_rows))
        num_diagonals = L + self.max_steps + 1
        self._rows = like.new_zeros((L + 1) * R, num_diagonals, num_rows, 2 * P)  # x, then h
        self._keep = torch.zeros(L * R, num_diagonals, num_rows, device=like.device, dtype=torch.uint8)
        self.layers = view_by_step(self._rows, R, self.max_steps + 1)  # (L + 1, R, T + 1, B, 2P)
        self.keep = view_by_step(self._keep, R, self.max_steps + 1)  # (L, R, T + 1, B)
        self._cells = torch.zeros(L * R, num_rows, H, device=like.device)
        self._inner = like.new_empty(L * R, num_rows, H)  # sigmoid(o) * tanh(c)
        self._hidden = like.new_empty(L * R, num_rows, P)
        self._launcher = StepLauncher(self._rows[: L * R], weights.kernels, weights.biases)
        self._use_graphs = use_graphs and like.is_cuda
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def chunk_lengths(self, num_steps: int) -> list[int]:
        """Splits a number of steps into chunks of only two lengths, so that two graphs are enough.

        The last short chunk is rounded up, by less than a quarter of `max_steps`.
        """
        short = self.max_steps // 4
        num_full, rest = divmod(num_steps, self.max_steps)
        return [self.max_steps] * num_full + [short] * -(-rest // short)

    def start(self) -> None:
        """Sets all rows to the beginning of a sentence."""
        h = self._weights.h
        self.layers[: len(h), :, 0, :, h.shape[2] :] = h[:, :, None]

    def run(self, num_steps: int, top: int) -> None:
        """Computes layers 1 to `top` of the next chunk."""
        if top == 0:
            return
        graph = self._graph(num_steps, top) if self._use_graphs else None
        if graph is None:
            self._launch_chunk(num_steps, top)
        else:
            graph.replay()

    def _graph(self, num_steps: int, top: int) -> torch.cuda.CUDAGraph | None:
        if (num_steps, top) not in self._graphs:
            saved_state = self._cells.clone(), self.layers[:, :, 0].clone()  # the warm-up runs change the state
            try:
                with torch.cuda.device(self._rows.device):
                    self._graphs[num_steps, top], _ = capture_graph(lambda: self._launch_chunk(num_steps, top))
            except RuntimeError as error:
                log.warning("CUDA graph capture of LSTM steps failed; they are launched one by one: %s", error)
                self._use_graphs = False
                return None
            finally:
                self._cells.copy_(saved_state[0])
                self.layers[:, :, 0].copy_(saved_state[1])
        return self._graphs[num_steps, top]

    def _launch_chunk(self, num_steps: int, top: int) -> None:
        _, R, P = self._weights.h.shape
        for diagonal, active, above in wavefront(num_steps, top, R):
            self._launch_diagonal(diagonal, active, above)
        self.layers[:top, :, 0, :, P:] = self.layers[:top, :, num_steps, :, P:]

    def _launch_diagonal(self, diagonal: int, active: slice, above: slice) -> None:
        """One step of each active layer and direction."""
        weights, rows = self._weights, self._rows
        _, R, P = weights.h.shape
        cells, inner, hidden = self._cells[active], self._inner[active], self._hidden[active]
        keep = self._keep[active]
        initial_h, initial_c = weights.h.flatten(0, 1)[active], weights.c.flatten(0, 1)[active]
        cell_clip = float(weights.cell_clip or 0.0)
        self._launcher.step(
            diagonal, cells, cells, inner, None, keep[:, diagonal], initial_c, active=active, clip=cell_clip
        )
        if weights.projections is None:
            hidden, clip = inner, 0.0
        else:
            torch.bmm(inner, weights.projections[active], out=hidden)
            clip = float(weights.proj_clip or 0.0)
        output_forward(
            hidden,
            rows[above, diagonal + 1, :, :P],
            rows[active, diagonal + 1, :, P:],
            keep[:, diagonal + 1],
            initial_h,
            clip=clip,
            skip=rows[active, diagonal, :, :P] if weights.skip else None,
            num_unskipped=max(0, R - active.start),  # the first layer has no skip connection
        )
