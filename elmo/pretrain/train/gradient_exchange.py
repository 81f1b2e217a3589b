"""Averages gradients over all processes while the backward pass still computes the others.

Parameters are grouped into buckets in the order in which their gradients become ready: from the softmax down to the
characters. As soon as the gradients of a bucket are there, one asynchronous all-reduce sends them. Every process starts
the buckets in the same order, so that collectives always match. A CUDA graph replays the complete backward pass in one
call, so steps that are recorded use `average_gradients` after it instead.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from elmo.pretrain.train import distributed

BUCKET_BYTES = 25 << 20  # a message of this size uses a network fully, and most of the gradients are sent early


class GradientExchange:
    """The exchange of one trainer: `begin` before a backward pass, `finish` after it."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._buckets = _buckets(parameters)
        self._bucket_of = {id(p): number for number, bucket in enumerate(self._buckets) for p in bucket}
        self._missing: list[int] = []  # per bucket: how many gradients are not there yet
        self._started: list[tuple[list[nn.Parameter], Tensor, Any]] = []
        self._active = False
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._note_ready)

    def begin(self) -> None:
        """Sends the gradients of the next backward pass as they become ready."""
        self._missing = [len(bucket) for bucket in self._buckets]
        self._started = []
        self._active = True

    def finish(self) -> None:
        """Replaces each gradient by its mean over all processes."""
        self._active = False
        while len(self._started) < len(self._buckets):  # parameters without a gradient hold their buckets back
            self._start()
        for dense, flat, work in self._started:
            if work is None:
                continue
            work.wait()
            flat /= distributed.world_size()
            for parameter, part in zip(dense, flat.split([p.numel() for p in dense]), strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(part.view_as(parameter))
        self._started = []
        distributed.average_sparse_gradients(self._parameters)

    def _note_ready(self, parameter: Tensor) -> None:
        if not self._active:
            return
        self._missing[self._bucket_of[id(parameter)]] -= 1
        while len(self._started) < len(self._buckets) and self._missing[len(self._started)] == 0:
            self._start()

    def _start(self) -> None:
        """Starts the exchange of the next bucket; sparse gradients are averaged at the end."""
        bucket = self._buckets[len(self._started)]
        dense = [p for p in bucket if p.grad is not None and not p.grad.is_sparse]
        if not dense:
            self._started.append(([], torch.empty(0), None))
            return
        flat = torch.cat([p.grad.flatten() for p in dense if p.grad is not None])
        work = dist.all_reduce(flat, group=distributed.step_group(), async_op=True)
        self._started.append((dense, flat, work))


def _buckets(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters in reverse order, in groups of at least BUCKET_BYTES; the last group may be smaller."""
    buckets: list[list[nn.Parameter]] = [[]]
    num_bytes = 0
    for parameter in reversed(parameters):
        if num_bytes >= BUCKET_BYTES:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(parameter)
        num_bytes += parameter.numel() * parameter.element_size()
    return buckets
