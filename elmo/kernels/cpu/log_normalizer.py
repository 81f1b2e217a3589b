"""The normalizer of the full softmax on the CPU through the compiled kernel (log_normalizer.h).

`SoftmaxHead` of `elmo.model.head` holds the plain implementation. Besides its arguments, a call needs 8 bytes per state
and 1,024 words.
"""

from __future__ import annotations

from ctypes import POINTER, Structure, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from elmo.kernels.cpu.abi import call, empty, floats, load


class LogNormalizerTask(Structure):
    """`LogNormalizerTask` of log_normalizer.h, field by field."""

    _fields_ = [
        *((name, c_void_p) for name in ("weight", "bias", "hidden", "out")),
        *((name, c_int64) for name in ("vocab_size", "proj_dim", "num_states", "num_threads")),
        ("stop", POINTER(c_int)),
    ]


def log_normalizer(weight: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
    """log(sum(exp(hidden @ weight.T + bias))) over the words, (N,), for states (N, P), rows (V, P) and biases (V,).

    All are float32 on the CPU. The result does not depend on the number of threads, and has no gradient.
    """
    assert weight.shape == (len(bias), hidden.shape[1])
    assert not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in (weight, bias, hidden))
    weight, bias, hidden = floats(weight), floats(bias), floats(hidden)
    out = empty(len(hidden))
    task = LogNormalizerTask(
        weight=weight.data_ptr(), bias=bias.data_ptr(), hidden=hidden.data_ptr(), out=out.data_ptr(),
        vocab_size=len(weight), proj_dim=weight.shape[1], num_states=len(hidden), num_threads=torch.get_num_threads(),
    )  # fmt: skip
    call(load().elmo_log_normalizer, task, len(hidden), weight, bias, hidden, out)
    return out
