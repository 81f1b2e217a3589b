"""Between the host and a GPU without waiting: through pinned memory, results on a stream of their own.

On a CPU, where the same code is tested, everything is a plain copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

ALIGNED = 4  # numbers: a kernel is compiled anew for pointers that are no multiple of 16 bytes


def upload(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """int32 arrays of one dimension on the device, in one copy. The host does not wait for it."""
    sizes = [len(array) for array in arrays]
    begins = np.cumsum([0, *(-(-size // ALIGNED) * ALIGNED for size in sizes)]).tolist()
    packed = torch.empty(begins[-1], dtype=torch.int32, pin_memory=device.type == "cuda")
    for array, begin, size in zip(arrays, begins, sizes, strict=False):
        packed.numpy()[begin : begin + size] = array
    there = packed.to(device, non_blocking=True)
    return [there[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)]


class Handover:
    """A tensor that one stream still computes. `wait` makes it safe to use on the stream of whoever waits."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._done: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._done = torch.cuda.Event()
            self._done.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> Tensor:
        if self._done is not None:
            stream = torch.cuda.current_stream(self._tensor.device)
            stream.wait_event(self._done)
            self._tensor.record_stream(stream)
        return self._tensor


class Download:
    """A tensor on its way to the host. `wait` gives it there; its memory is not used for anything else."""

    def __init__(self, tensor: Tensor, stream: torch.cuda.Stream | None) -> None:
        self._done: torch.cuda.Event | None = None
        if stream is None:
            self._host = tensor
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            self._host.copy_(tensor, non_blocking=True)
            self._done = torch.cuda.Event()
            self._done.record(stream)
        tensor.record_stream(stream)  # its memory is not given away before it is copied

    def wait(self) -> Tensor:
        if self._done is not None:
            self._done.synchronize()
        return self._host
