"""Muon's Newton-Schulz iteration on the CPU through the compiled kernel (newton_schulz.h).

`elmo.pretrain.train.muon` holds the plain implementation and chooses this one where it is available.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_float, c_int64, c_void_p

import torch
from torch import Tensor

from elmo.kernels.cpu.abi import check, load


class NewtonSchulzTask(Structure):
    """`NewtonSchulzTask` of newton_schulz.h, field by field."""

    _fields_ = [
        ("matrices", c_void_p),
        *((name, c_int64) for name in ("count", "rows", "columns", "num_iterations")),
        *((name, c_float) for name in ("a", "b", "c")),
        ("num_threads", c_int64),
    ]


def iterate(matrices: Tensor, coefficients: tuple[float, float, float], num_iterations: int) -> Tensor:
    """Replaces x by a x + (b g + c g^2) x with g = x x^T, `num_iterations` times, for each x of (N, rows, columns).

    The matrices are float32 with rows <= columns. The result does not depend on the number of threads.
    """
    result = matrices.detach().clone(memory_format=torch.contiguous_format)
    count, rows, columns = result.shape
    assert result.dtype == torch.float32
    assert rows <= columns
    a, b, c = coefficients
    task = NewtonSchulzTask(
        matrices=result.data_ptr(), count=count, rows=rows, columns=columns, num_iterations=num_iterations,
        a=a, b=b, c=c, num_threads=torch.get_num_threads(),
    )  # fmt: skip
    check(load().elmo_newton_schulz(ctypes.byref(task)))
    return result
