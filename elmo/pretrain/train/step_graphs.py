"""A step's losses and gradients recorded once as a CUDA graph and replayed: no launch is waited for.

A step is about two thousand short kernels; launched one by one they take longer to launch than to run. All shapes are
the same in every step but the number of distinct words, which `feed` rounds up to few numbers: one graph for each.
Recorded is exactly what the plain step does (`Stepper.gradients`); dropout's chance is set anew before each replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.kernels.cuda.graphs import capture_graph
from elmo.model.lstm import State
from elmo.pretrain.train.step_inputs import Feed

MOST_GRAPHS = 24  # each holds gradients of its own; of the shapes beyond, the oldest is forgotten

Gradients = Callable[[Feed, State], tuple[Tensor, State]]  # fills the parameters' .grad


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    feed: Feed  # where the graph reads
    losses: Tensor  # (D,)
    after: State
    grads: list[Tensor | None]


class Graphs:
    """Replays of `gradients`, a graph for each shape of feed."""

    def __init__(self, gradients: Gradients, parameters: list[nn.Parameter]) -> None:
        self._gradients, self._parameters = gradients, parameters
        self._recorded: dict[tuple[int, bool], _Recorded] = {}
        self._state: State | None = None  # where all graphs read it
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, feed: Feed, state: State, seed: int) -> tuple[Tensor, State]:
        """Losses (D,) and the states after them; gradients are in the parameters' .grad, until the next run."""
        shape = len(feed.types), feed.fresh is not None
        if self._state is None:
            self._state = State(state.h.clone(), state.c.clone())
        if shape not in self._recorded:
            if len(self._recorded) >= MOST_GRAPHS:
                del self._recorded[next(iter(self._recorded))]
            self._recorded[shape] = self._record(feed.to(state.h.device), self._state)
        recorded = self._recorded[shape]
        for name, mine in recorded.feed.tensors().items():
            mine.copy_(getattr(feed, name), non_blocking=True)
        self._state.h.copy_(state.h)
        self._state.c.copy_(state.c)
        torch.manual_seed(seed)
        recorded.graph.replay()
        for parameter, grad in zip(self._parameters, recorded.grads, strict=True):
            parameter.grad = grad
        return recorded.losses, State(recorded.after.h.clone(), recorded.after.c.clone())

    def _record(self, feed: Feed, state: State) -> _Recorded:
        def step() -> tuple[Tensor, State]:
            for parameter in self._parameters:
                parameter.grad = None
            return self._gradients(feed, state)

        with torch.cuda.device(state.h.device):
            graph, (losses, after) = capture_graph(step, self._pool)
        return _Recorded(graph, feed, losses, after, [parameter.grad for parameter in self._parameters])
