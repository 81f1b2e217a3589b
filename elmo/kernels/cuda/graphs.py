"""What a function puts on the GPU, recorded once as a CUDA graph: replayed, no launch is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def capture_graph(launch: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph, and what `launch` returned while it was recorded: tensors that every replay fills anew.

    `launch` runs twice before: kernels are compiled and libraries set up before anything is recorded.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            launch()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # thread_local: prefetching threads may pin memory meanwhile
    with torch.cuda.graph(graph, pool=pool, stream=aside, capture_error_mode="thread_local"):
        result = launch()
    return graph, result
