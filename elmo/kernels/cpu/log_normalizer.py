"""The normalizer of the full softmax on the CPU through the compiled kernel (log_normalizer.h).

`SoftmaxHead` of `elmo.model.head` holds the plain implementation. Memory grows with the number of states only, not
with states times words.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p

import torch
from torch import Tensor

from elmo.kernels.cpu.abi import check, floats, load


class LogNormalizerTask(Structure):
    """`LogNormalizerTask` of log_normalizer.h, field by field."""

    _fields_ = [
        *((name, c_void_p) for name in ("weight", "bias", "hidden", "out")),
        *((name, c_int64) for name in ("vocab_size", "proj_dim", "num_states", "num_threads")),
    ]


def log_normalizer(weight: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
    """log(sum(exp(hidden @ weight.T + bias))) over the words, (N,), for states (N, P), rows (V, P) and biases (V,).

    All are float32 on the CPU. The result does not depend on the number of threads.
    """
    weight, bias, hidden = floats(weight), floats(bias), floats(hidden)
    out = torch.empty(len(hidden))
    task = LogNormalizerTask(
        weight=weight.data_ptr(), bias=bias.data_ptr(), hidden=hidden.data_ptr(), out=out.data_ptr(),
        vocab_size=len(weight), proj_dim=weight.shape[1], num_states=len(hidden), num_threads=torch.get_num_threads(),
    )  # fmt: skip
    check(load().elmo_log_normalizer(ctypes.byref(task)))
    return out
