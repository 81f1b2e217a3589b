"""Cross entropy among a true word and sampled ones on CUDA, over one matrix of logits and nothing else as large.

The twin of the plain sampled softmax in `elmo.pretrain.train.objective`. The matrix (N, S) is written once by the
product, read once for the sums, and turned into its own gradient in place; accidental hits are single cells, never a
mask.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def sampled_cross_entropy(hidden: Tensor, rows: Tensor, offsets: Tensor, true_logits: Tensor, hit: Tensor) -> Tensor:
    """Mean loss of states (N, P) against sampled rows (S, P) with offsets (S,), and each state's true logit (N,).

    `hit` (N,) is the number of the sampled row that is a state's own true word, or -1: it is left out there.
    """
    loss: Tensor = _Sampled.apply(hidden, rows, offsets, true_logits, hit)
    return loss


class _Sampled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: Tensor, offsets: Tensor, true_logits: Tensor, hit: Tensor) -> Tensor:
        logits = torch.addmm(offsets.to(hidden.dtype), hidden, rows.t())  # (N, S)
        N, S = logits.shape
        true = true_logits.float().contiguous()
        total = torch.empty(N, device=hidden.device, dtype=torch.float32)  # log of all exponentials, the true one's too
        _sum_kernel[(N,)](logits, true, hit, total, S, BLOCK=BLOCK)
        ctx.save_for_backward(hidden, rows, logits, true, hit, total)
        return (total - true).mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, rows, logits, true, hit, total = ctx.saved_tensors
        N, S = logits.shape
        scale = (grads[0] / N).float().reshape(1)
        _share_kernel[(N, triton.cdiv(S, BLOCK))](logits, hit, total, scale, S, BLOCK=BLOCK)  # logits become shares
        d_true = ((true - total).exp() - 1.0) * scale
        # ones beside the states (8, to keep rows aligned): the offsets' gradient comes with that of the rows
        read = torch.cat([hidden, hidden.new_ones(1, 8).expand(N, 8)], dim=1)  # (N, P+8)
        d_read = logits.t() @ read  # (S, P+8)
        P = hidden.shape[1]
        return logits @ rows, d_read[:, :P], d_read[:, P].float(), d_true, None


@triton.jit
def _sum_kernel(logits, true, hit, total, S, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton compiles it
    row = tl.program_id(0).to(tl.int64)
    skipped = tl.load(hit + row)
    highest = tl.load(true + row)
    amount = 1.0
    for start in range(0, S, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        values = tl.load(logits + row * S + cols, mask=cols < S, other=float("-inf")).to(tl.float32)
        values = tl.where(cols == skipped, float("-inf"), values)
        new = tl.maximum(highest, tl.max(values, axis=0))
        amount = amount * tl.exp(highest - new) + tl.sum(tl.exp(values - new), axis=0)
        highest = new
    tl.store(total + row, highest + tl.log(amount))


@triton.jit
def _share_kernel(logits, hit, total, scale, S, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton compiles it
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < S
    values = tl.load(logits + row * S + cols, mask=inside, other=float("-inf")).to(tl.float32)
    share = tl.exp(values - tl.load(total + row)) * tl.load(scale)
    share = tl.where(cols == tl.load(hit + row), 0.0, share)
    tl.store(logits + row * S + cols, share.to(logits.dtype.element_ty), mask=inside)
