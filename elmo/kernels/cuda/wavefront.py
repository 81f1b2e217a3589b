"""LSTM layers in flight: while the first reads step t, the second reads step t - 1, and so on, in one launch.

What is in flight together stands at the same place of a buffer (L*D, places, ...): step t of layer l at place l + t.
Shapes: L layers, D directions, T steps.
"""

from __future__ import annotations

from torch import Tensor


def waves(num_steps: int, num_layers: int, num_directions: int) -> list[tuple[int, slice, slice]]:
    """Each place, which of L*D have a step there, and which of (L + 1)*D are the layers above these."""
    found = []
    for place in range(num_steps + num_layers - 1):
        low, high = max(0, place - num_steps + 1), min(num_layers, place + 1)
        these, above = (slice((low + up) * num_directions, (high + up) * num_directions) for up in (0, 1))
        found.append((place, these, above))
    return found


def by_step(flying: Tensor, num_directions: int, num_steps: int) -> Tensor:
    """A buffer (L*D, places, ...) as (L, D, T, ...)."""
    layers = flying.unflatten(0, (-1, num_directions))  # (L, D, places, ...)
    strides, shape = layers.stride(), layers.shape
    return layers.as_strided((*shape[:2], num_steps, *shape[3:]), (strides[0] + strides[2], *strides[1:]))
