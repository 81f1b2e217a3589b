"""CUDA graph capture: the kernels that a function launches are captured once and replayed without launch overhead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def capture_graph(launch: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The CUDA graph and the result of `launch` during the capture: tensors that every replay overwrites.

    `launch` runs twice before the capture as a warm-up, so that kernels are compiled and libraries are initialised.
    """
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(2):
            launch()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    # thread_local: prefetching threads may pin memory during the capture
    with torch.cuda.graph(graph, pool=pool, stream=side_stream, capture_error_mode="thread_local"):
        result = launch()
    return graph, result
