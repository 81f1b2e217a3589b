"""What a large matrix product reaches on a device: the peak that benchmarks compare with."""

from __future__ import annotations

import time

import torch


def peak(device: torch.device | str, dtype: torch.dtype) -> float:
    """Operations a second of the fastest of a few."""
    cuda = torch.device(device).type == "cuda"
    size, repeats = (8192, 10) if cuda else (1024, 3)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = []
    for _ in range(4):  # the first one warms up
        start = time.perf_counter()
        for _ in range(repeats):
            a @ b
        if cuda:
            torch.cuda.synchronize(device)
        seconds.append((time.perf_counter() - start) / repeats)
    return 2 * size**3 / min(seconds)
