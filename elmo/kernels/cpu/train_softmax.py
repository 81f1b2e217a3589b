"""The sampled and the full softmax of training on the CPU: losses of all directions through one compiled call.

This is the fast implementation of `elmo.pretrain.train.objective` (train_softmax.h); for it, each part of an adaptive
softmax is a full softmax. The forward pass computes losses and gradients; the backward pass scales them and writes the
dense gradients of weight and bias. Memory does not grow with the number of states, apart from results of their size.
Shapes: R directions, N states, S scored words, V words in the vocabulary, P projection.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import Structure, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.kernels.cpu.abi import DTYPES, check, empty, floats, load
from elmo.model.bilm import BiLM


class SoftmaxTask(Structure):
    """`SoftmaxTask` of train_softmax.h, field by field."""

    _fields_ = [
        *((name, c_void_p) for name in ("weight", "bias")),
        *((name, c_int64) for name in ("vocab_size", "proj_dim", "num_directions", "num_states", "num_words", "dtype")),
        *((name, c_void_p) for name in ("hidden", "targets", "ids", "log_counts", "true_log_counts")),
        *((name, c_void_p) for name in ("losses", "d_hidden", "d_rows", "d_offsets", "d_true")),
        *((name, c_void_p) for name in ("scales", "d_weight", "d_bias")),
        ("num_threads", c_int64),
    ]


def supports(model: BiLM) -> str | None:
    """Why the kernel cannot compute the losses of this model; None: it can."""
    return None if model.head is not None else "the model has no softmax"


def softmax_losses(
    weight: Tensor,
    bias: Tensor,
    hidden: Tensor,
    targets: Tensor,
    ids: Tensor | None = None,
    log_counts: Tensor | None = None,
    true_log_counts: Tensor | None = None,
) -> Tensor:
    """Mean losses (R,) of states (R, N, P) with true words `targets` (R, N), for softmax rows (V, P) and biases (V,).

    `ids` (R, S) are the distinct words that are scored besides the true one; None: all words. `log_counts` (R, S) and
    `true_log_counts` (R, N) are subtracted from the logits. Products are computed in the dtype of `hidden`, float32 or
    bfloat16, all sums in float32. The results do not depend on the number of threads.
    """
    losses: Tensor = _Softmax.apply(weight, bias, hidden, targets, ids, log_counts, true_log_counts)  # type: ignore[no-untyped-call]  # of torch
    return losses


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        bias: Tensor,
        hidden: Tensor,
        targets: Tensor,
        ids: Tensor | None,
        log_counts: Tensor | None,
        true_log_counts: Tensor | None,
    ) -> Tensor:
        library = load()
        (R, N, P), V = hidden.shape, len(bias)
        S = V if ids is None else ids.shape[1]
        panel = library.elmo_panel()
        inputs = {
            "weight": floats(weight), "bias": floats(bias), "hidden": floats(hidden), "targets": _longs(targets),
            "ids": None if ids is None else _longs(ids),
            "log_counts": None if log_counts is None else floats(log_counts),
            "true_log_counts": None if true_log_counts is None else floats(true_log_counts),
        }  # fmt: skip
        row_dim = -(-P // panel) * panel
        results = {
            "losses": empty(R), "d_hidden": empty(R, N, P), "d_rows": empty(R, S, row_dim),
            "d_offsets": empty(R, S), "d_true": empty(R, N),
        }  # fmt: skip
        ctx.task = SoftmaxTask(
            vocab_size=V, proj_dim=P, num_directions=R, num_states=N, num_words=S, dtype=_dtype_code(hidden.dtype),
            num_threads=torch.get_num_threads(), **_pointers(inputs), **_pointers(results),
        )  # fmt: skip
        check(library.elmo_softmax(ctypes.byref(ctx.task)))
        losses = results.pop("losses")  # the result must not refer to itself through ctx, or only gc frees all of this
        ctx.tensors = inputs | results  # the task points to their memory
        ctx.hidden_dtype = hidden.dtype
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scales = floats(grads[0])  # (R,)
        weight, d_hidden = ctx.tensors["weight"], ctx.tensors["d_hidden"]
        d_hidden = (d_hidden * scales[:, None, None]).to(ctx.hidden_dtype)
        if not any(ctx.needs_input_grad[:2]):
            return None, None, d_hidden, None, None, None, None
        outputs = {"scales": scales, "d_weight": torch.empty_like(weight), "d_bias": empty(len(weight))}
        task = SoftmaxTask.from_buffer_copy(ctx.task)
        for name, pointer in _pointers(outputs).items():
            setattr(task, name, pointer)
        check(load().elmo_softmax_gradient(ctypes.byref(task)))
        return outputs["d_weight"], outputs["d_bias"], d_hidden, None, None, None, None


def _longs(tensor: Tensor) -> Tensor:
    return tensor.detach().long().contiguous()


def _pointers(tensors: Mapping[str, Tensor | None]) -> dict[str, int | None]:
    return {name: None if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()}


def _dtype_code(dtype: torch.dtype) -> int:
    return DTYPES[str(dtype).removeprefix("torch.")]
