"""The memory of large gradients: it returns when a tensor is freed, and never while somebody refers to it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
import torch

from elmo.kernels.cpu.gradient_memory import SMALLEST, GradientMemory


def test_memory_is_used_again_after_its_tensor_is_freed() -> None:
    memory, parameter = GradientMemory(), torch.empty(2, SMALLEST)
    first = memory.empty_like(parameter)
    address = first.data_ptr()
    del first
    assert memory.empty_like(parameter).data_ptr() == address


def test_memory_is_not_used_again_while_a_view_refers_to_it() -> None:
    memory, parameter = GradientMemory(), torch.empty(2, SMALLEST)
    first = memory.empty_like(parameter)
    row = first[1].fill_(3.0)
    del first
    gc.collect()
    memory.empty_like(parameter).fill_(0.0)
    assert (row == 3.0).all()


def test_a_parameter_keeps_the_memory_of_its_gradient() -> None:
    memory, parameter = GradientMemory(), torch.nn.Parameter(torch.ones(SMALLEST))

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: object, d_y: torch.Tensor) -> torch.Tensor:
            return memory.empty_like(d_y).copy_(2 * d_y)

    addresses = []
    for _ in range(3):
        parameter.grad = None
        Double.apply(parameter).sum().backward()
        assert parameter.grad is not None
        assert (parameter.grad == 2).all()
        addresses.append(parameter.grad.data_ptr())
    assert len(set(addresses)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_memory_is_not_shared_with_a_forked_process() -> None:
    code = """
import os, torch
from elmo.kernels.cpu.gradient_memory import SMALLEST, GradientMemory
tensor = GradientMemory().empty_like(torch.empty(SMALLEST)).fill_(1.0)
child = os.fork()
if child == 0:
    tensor.numpy()[:] = 2.0
    os._exit(0)
os.waitpid(child, 0)
print(float(tensor.min()), float(tensor.max()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.stdout.split() == ["1.0", "1.0"], done.stderr


def test_small_tensors_and_tensors_after_the_object_stay_valid() -> None:
    memory = GradientMemory()
    small, large = memory.empty_like(torch.empty(3, 2)), memory.empty_like(torch.empty(SMALLEST)).fill_(5.0)
    assert small.shape == (3, 2)
    del memory
    gc.collect()
    assert (large == 5.0).all()
