"""CUDA graphs of a training step: losses and gradients are captured once per input shape and then replayed.

A step launches about two thousand short kernels, and launching them one by one takes longer than running them. All
shapes are the same in every step except the number of distinct word types, which `step_inputs` rounds up to a few
sizes; one graph is captured for each size. A graph holds exactly the operations of the eager step
(`Trainer.gradients`). Dropout stays random because the generator is seeded anew before each replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.kernels.cuda.graphs import capture_graph
from elmo.model.lstm import State
from elmo.pretrain.train.step_inputs import StepInputs

MAX_GRAPHS = 24  # each graph holds its own gradients; beyond this number the oldest graph is evicted

Gradients = Callable[[StepInputs, State], tuple[Tensor, State]]  # fills the parameters' .grad


@dataclass(frozen=True)
class _CapturedStep:
    graph: torch.cuda.CUDAGraph
    inputs: StepInputs  # the buffers that the graph reads
    losses: Tensor  # (R,)
    final_state: State
    grads: list[Tensor | None]  # one per parameter


class Graphs:
    """A cache of CUDA graphs of `gradients`, one per shape of the inputs."""

    def __init__(self, gradients: Gradients, parameters: list[nn.Parameter]) -> None:
        self._gradients, self._parameters = gradients, parameters
        self._captured: dict[tuple[int, bool], _CapturedStep] = {}
        self._state: State | None = None  # the buffer from which all graphs read the initial state
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, inputs: StepInputs, state: State, seed: int) -> tuple[Tensor, State]:
        """The losses (R,) and the final LSTM states of one replay; captures a graph for a new shape first.

        The gradients are in the parameters' .grad and are valid until the next run.
        """
        shape = len(inputs.types), inputs.resets is not None
        if self._state is None:
            self._state = State(state.h.clone(), state.c.clone())
        if shape not in self._captured:
            if len(self._captured) >= MAX_GRAPHS:
                del self._captured[next(iter(self._captured))]
            self._captured[shape] = self._capture(inputs.to(state.h.device), self._state)
        captured = self._captured[shape]
        for name, buffer in captured.inputs.tensors().items():
            buffer.copy_(getattr(inputs, name), non_blocking=True)
        self._state.h.copy_(state.h)
        self._state.c.copy_(state.c)
        torch.manual_seed(seed)
        captured.graph.replay()
        for parameter, grad in zip(self._parameters, captured.grads, strict=True):
            parameter.grad = grad
        return captured.losses, State(captured.final_state.h.clone(), captured.final_state.c.clone())

    def _capture(self, inputs: StepInputs, state: State) -> _CapturedStep:
        def launch() -> tuple[Tensor, State]:
            for parameter in self._parameters:
                parameter.grad = None
            return self._gradients(inputs, state)

        with torch.cuda.device(state.h.device):
            graph, (losses, final_state) = capture_graph(launch, self._pool)
        return _CapturedStep(graph, inputs, losses, final_state, [parameter.grad for parameter in self._parameters])
