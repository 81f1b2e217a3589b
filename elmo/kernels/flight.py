"""LSTM layers in flight: while the first reads step t, the second reads step t - 1, and so on, in one launch.

What is in flight together stands at the same place of a buffer (L*D, places, ...): step t of layer l at place l + t.
Shapes: L layers, D directions, T steps.
"""

from __future__ import annotations

from torch import Tensor


def waves(num_steps: int, num_layers: int) -> list[tuple[int, int, int]]:
    """Each place, and the layers that have a step there: from the first up to the second, not included."""
    return [
        (place, max(0, place - num_steps + 1), min(num_layers, place + 1))
        for place in range(num_steps + num_layers - 1)
    ]


def by_step(flying: Tensor, num_directions: int, num_steps: int) -> Tensor:
    """A buffer (L*D, places, ...) as (L, D, T, ...)."""
    layers = flying.unflatten(0, (-1, num_directions))  # (L, D, places, ...)
    strides, shape = layers.stride(), layers.shape
    return layers.as_strided((*shape[:2], num_steps, *shape[3:]), (strides[0] + strides[2], *strides[1:]))
