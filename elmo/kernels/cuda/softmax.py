"""Sampled softmax on CUDA: cross entropy of the true word against sampled words, with a single matrix of logits.

This is the fast implementation of the sampled softmax in `elmo.pretrain.train.objective`. The product writes the matrix
(N, S) once, one kernel reads it once for the sums, and another overwrites it with its own gradient. An accidental hit
is one index per state, never a mask. Shapes: N states, S sampled words, P projection.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def sampled_cross_entropy(hidden: Tensor, rows: Tensor, offsets: Tensor, true_logits: Tensor, hits: Tensor) -> Tensor:
    """Mean loss of states (N, P) with true logits (N,) against sampled softmax rows (S, P) with offsets (S,).

    `hits` (N,) is the index of the sampled row that is the state's own true word, or -1; that row is left out there.
    """
    loss: Tensor = _SampledCrossEntropy.apply(hidden, rows, offsets, true_logits, hits)  # type: ignore[no-untyped-call]  # of torch
    return loss


class _SampledCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: Tensor, offsets: Tensor, true_logits: Tensor, hits: Tensor) -> Tensor:
        logits = torch.addmm(offsets.to(hidden.dtype), hidden, rows.t())  # (N, S)
        N, S = logits.shape
        true = true_logits.float().contiguous()
        log_sums = torch.empty(N, device=hidden.device, dtype=torch.float32)  # log-sum-exp, with the true logit
        _log_sum_kernel[(N,)](logits, true, hits, log_sums, S, BLOCK=BLOCK)
        ctx.save_for_backward(hidden, rows, logits, true, hits, log_sums)
        return (log_sums - true).mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, rows, logits, true, hits, log_sums = ctx.saved_tensors
        N, S = logits.shape
        scale = (grads[0] / N).float().reshape(1)
        _gradient_kernel[(N, triton.cdiv(S, BLOCK))](logits, hits, log_sums, scale, S, BLOCK=BLOCK)  # in place
        d_true = ((true - log_sums).exp() - 1.0) * scale
        # ones next to the states yield the offsets' gradient in the same product (8 of them keep rows aligned)
        inputs = torch.cat([hidden, hidden.new_ones(1, 8).expand(N, 8)], dim=1)  # (N, P+8)
        d_inputs = logits.t() @ inputs  # (S, P+8)
        P = hidden.shape[1]
        return logits @ rows, d_inputs[:, :P], d_inputs[:, P].float(), d_true, None


@triton.jit
def _log_sum_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    logits, true, hits, log_sums, S, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    hit = tl.load(hits + row)
    maximum = tl.load(true + row)
    exp_sum = 1.0
    for start in range(0, S, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        values = tl.load(logits + row * S + cols, mask=cols < S, other=float("-inf")).to(tl.float32)
        values = tl.where(cols == hit, float("-inf"), values)
        new_maximum = tl.maximum(maximum, tl.max(values, axis=0))
        exp_sum = exp_sum * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(values - new_maximum), axis=0)
        maximum = new_maximum
    tl.store(log_sums + row, maximum + tl.log(exp_sum))


@triton.jit
def _gradient_kernel(  # type: ignore[no-untyped-def]  # Triton compiles it
    logits, hits, log_sums, scale, S, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < S
    values = tl.load(logits + row * S + cols, mask=inside, other=float("-inf")).to(tl.float32)
    gradient = tl.exp(values - tl.load(log_sums + row)) * tl.load(scale)
    gradient = tl.where(cols == tl.load(hits + row), 0.0, gradient)
    tl.store(logits + row * S + cols, gradient.to(logits.dtype.element_ty), mask=inside)
