"""What LSTM steps on CUDA give back to their rows [x; h]: products of the gates' gradients and the weights.

For the backward pass of `lstm_cuda`, in two ways: all layers in flight, or for few rows layer by layer with the product
in parts. Shapes: L layers, D directions, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from elmo.kernels.flight import by_step, waves

PARTS = 8


class Together:
    """Gradients of x and h of all layers in flight in one product, of weights `kernels` (L*D, 2P, 4H).

    `gates` (L*D, places, B, 4H) are gradients when `step` is called. `to_x` (L*D + D, places, B, P) is what layers give
    to x; behind them is room for what the top layer's readers give.
    """

    def __init__(self, kernels: Tensor, gates: Tensor, num_directions: int, num_steps: int) -> None:
        E, places, B, _ = gates.shape
        P = kernels.shape[1] // 2
        self._gates, self._kernels_t, self._num_directions = gates, kernels.transpose(1, 2), num_directions
        self._waves = list(waves(num_steps, E // num_directions))
        self._rows = gates.new_empty(E + num_directions, places, B, 2 * P)
        self.to_x, self._to_h = self._rows[..., :P], self._rows[..., P:]
        by_step(self._to_h[:E], num_directions, num_steps + 1)[:, :, -1] = 0  # no step is read by one after the last

    def waves(self) -> Iterator[tuple[int, int, int]]:
        """Places and layers, as in `flight.waves`, in the order to take them in."""
        return reversed(self._waves)

    def step(self, place: int, low: int, high: int) -> None:
        these = slice(low * self._num_directions, high * self._num_directions)
        torch.bmm(self._gates[these, place], self._kernels_t[these], out=self._rows[these, place])

    def to_hidden(self, place: int, low: int, high: int) -> Tensor | None:
        """What the next steps give to the h of these: ((high - low)*D, parts, B, P), to be added up; None: nothing."""
        return self._to_h[low * self._num_directions : high * self._num_directions, None, place + 1]


class InParts:
    """The same layer by layer: h's share of a step in parts of the gates, x's of all steps at a layer's end."""

    def __init__(self, kernels: Tensor, gates: Tensor, num_directions: int, num_steps: int) -> None:
        E, places, B, num_gates = gates.shape
        P = kernels.shape[1] // 2
        parts = PARTS if num_gates % PARTS == 0 else 4
        self._gates, self._num_directions, self._num_steps = gates, num_directions, num_steps
        self._input_t = kernels[:, :P].transpose(1, 2)  # (E, 4H, P)
        self._recurrent_t = kernels[:, P:].unflatten(2, (parts, -1)).permute(0, 2, 3, 1)  # (E, parts, 4H / parts, P)
        self._parts = gates.new_empty(num_directions, parts, B, P)
        self.to_x = gates.new_empty(E + num_directions, places, B, P)

    def waves(self) -> Iterator[tuple[int, int, int]]:
        for layer in reversed(range(len(self._gates) // self._num_directions)):
            for place in reversed(range(layer, layer + self._num_steps)):
                yield place, layer, layer + 1

    def step(self, place: int, low: int, high: int) -> None:
        these = slice(low * self._num_directions, high * self._num_directions)
        if place > low:  # before step 0 the text is cut
            for rows, weights, to in zip(self._gates[these, place], self._recurrent_t[these], self._parts, strict=True):
                torch.bmm(rows.unflatten(1, (len(to), -1)).transpose(0, 1), weights, out=to)
        else:
            part = slice(low, low + self._num_steps)
            to = self.to_x[these, part].flatten(1, 2)  # (D, T*B, P)
            torch.bmm(self._gates[these, part].flatten(1, 2), self._input_t[these], out=to)

    def to_hidden(self, place: int, low: int, high: int) -> Tensor | None:
        return None if place + 1 == low + self._num_steps else self._parts
