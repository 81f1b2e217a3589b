"""Memory for large gradients that is used again in the next step.

Optimizers drop all gradients before a step, and the system then hands out new pages one by one: for a few megabytes
this takes longer than filling them. Here the memory of a gradient that nobody refers to any more serves the next one
of the same size, and it lies on huge pages where the system has them.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref

import numpy as np
import torch
from torch import Tensor

SMALLEST = 1 << 18  # floats; smaller gradients come from PyTorch's allocator


class GradientMemory:
    """Float32 tensors whose memory comes back to this object when they are freed. It is freed with the object."""

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}

    def empty_like(self, parameter: Tensor) -> Tensor:
        """A tensor of the parameter's shape with undefined contents."""
        count = math.prod(parameter.shape)
        if count < SMALLEST:
            return torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
        free = self._free.setdefault(count, [])
        pages = free.pop() if free else _new_pages(count * 4)
        array = np.frombuffer(pages, np.float32, count)
        # the tensor refers to the array, which dies with it
        weakref.finalize(array, free.append, pages).atexit = False
        return torch.from_numpy(array).view(parameter.shape)


def _new_pages(num_bytes: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, num_bytes)
    # private: pages are not shared with a forked process, and huge pages are those of ordinary memory
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
