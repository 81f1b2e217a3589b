"""The wavefront schedule of stacked LSTM layers: one launch computes step t of layer 0, step t - 1 of layer 1, ...

All steps of one launch are on the same diagonal: step t of layer l is on diagonal l + t. Buffers are stored by
diagonal, (LR, diagonals, ...), so that the inputs and outputs of one launch are one slice.
Shapes: L layers, R directions, LR = L * R, T steps.
"""

from __future__ import annotations

from torch import Tensor


def wavefront(num_steps: int, num_layers: int, num_directions: int) -> list[tuple[int, slice, slice]]:
    """One entry per launch: the diagonal, the slice of LR that has a step on it, and the slice of the layers above.

    The layers above are a slice of (L + 1) * R, because the outputs of the top layer are stored as one more layer.
    """
    launches = []
    for diagonal in range(num_steps + num_layers - 1):
        low, high = max(0, diagonal - num_steps + 1), min(num_layers, diagonal + 1)
        active, above = (slice((low + up) * num_directions, (high + up) * num_directions) for up in (0, 1))
        launches.append((diagonal, active, above))
    return launches


def view_by_step(buffer: Tensor, num_directions: int, num_steps: int) -> Tensor:
    """A view (L, R, T, ...) of a buffer (LR, diagonals, ...)."""
    layers: Tensor = buffer.unflatten(0, (-1, num_directions))  # (L, R, diagonals, ...)
    strides, shape = layers.stride(), layers.shape
    return layers.as_strided((*shape[:2], num_steps, *shape[3:]), (strides[0] + strides[2], *strides[1:]))
