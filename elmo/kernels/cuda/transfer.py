"""Asynchronous copies between host and GPU through pinned memory; downloads use a CUDA stream of their own.

On a CPU, where the same code is tested, everything is a plain copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

ALIGNMENT = 4  # int32 values: Triton compiles a kernel again for pointers that are not a multiple of 16 bytes


def upload(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """One-dimensional int32 arrays as tensors on the device, in one copy that the host does not wait for."""
    sizes = [len(array) for array in arrays]
    begins = np.cumsum([0, *(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]).tolist()
    packed = torch.empty(begins[-1], dtype=torch.int32, pin_memory=device.type == "cuda")
    for array, begin, size in zip(arrays, begins, sizes, strict=False):
        packed.numpy()[begin : begin + size] = array
    on_device = packed.to(device, non_blocking=True)
    return [on_device[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)]


class PendingTensor:
    """A tensor that one stream still computes. `wait` makes it safe to use on the caller's current stream."""

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


class AsyncDownload:
    """A tensor that is being copied to the host. `wait` blocks until the copy is done and returns the host tensor."""

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
        tensor.record_stream(stream)  # the allocator reuses the tensor's memory only after the copy

    def wait(self) -> Tensor:
        if self._done is not None:
            self._done.synchronize()
        return self._host
