"""Losses of one direction: top states (N, P) and the words that follow (N,) to a mean loss in nats.

The full softmax here never holds more than a block of rows x the vocabulary, forward or backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from elmo.kernels.api import SampledCrossEntropy
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.pretrain.train.sampler import Sample, expected_count

LOGITS_AT_ONCE = 1 << 26  # numbers of logits held at once by the full softmax: 256 MB in float32


def sampled_softmax_loss(
    head: SoftmaxHead,
    hidden: Tensor,
    targets: Tensor,
    sample: Sample,
    *,
    sparse: bool = False,
    fused: SampledCrossEntropy | None = None,
) -> Tensor:
    """Cross entropy among each true word and the sampled ones, corrected by log expected counts.

    A sampled word that is a row's true word is left out of that row. With `sparse`, gradients of the softmax hold the
    touched rows alone. `fused` computes the same with less memory (`elmo.kernels`); None: plain PyTorch.
    """
    V = head.vocab_size
    true_count = expected_count(targets, sample.num_tries, V).log().float()  # (N,)
    sample_count = expected_count(sample.ids, sample.num_tries, V).log().float()  # (S,)
    true_rows, true_bias = _rows(head, targets, sparse)
    rows, bias = _rows(head, sample.ids, sparse)
    true_logits = (hidden.float() * true_rows).sum(-1) + true_bias - true_count  # (N,)
    if fused is not None:
        return fused(hidden, rows.to(hidden.dtype), bias - sample_count, true_logits, _hits(targets, sample, V))
    logits = torch.addmm((bias - sample_count).to(hidden.dtype), hidden, rows.to(hidden.dtype).t())  # (N, S)
    hits = targets[:, None] == sample.ids[None, :]  # (N, S)
    logits = logits.float().masked_fill(hits, float("-inf"))
    return (torch.logaddexp(logits.logsumexp(dim=-1), true_logits) - true_logits).mean()


def _hits(targets: Tensor, sample: Sample, vocab_size: int) -> Tensor:
    """Where each true word stands among the sampled ones, (N,); -1: nowhere."""
    number = torch.full((vocab_size,), -1, dtype=torch.int32, device=targets.device)
    number[sample.ids] = torch.arange(len(sample.ids), dtype=torch.int32, device=targets.device)
    return number[targets]


def full_softmax_loss(head: SoftmaxHead, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over the whole vocabulary in bounded memory."""
    loss: Tensor = _FullSoftmax.apply(hidden, head.weight, head.bias, targets)  # type: ignore[no-untyped-call]  # of torch
    return loss


def adaptive_softmax_loss(head: AdaptiveHead, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of the adaptive softmax (Grave et al. 2017): exact, cheap for frequent words."""
    return -head.log_probs(hidden, targets).mean()


class _FullSoftmax(torch.autograd.Function):
    """Blocks of rows: logits, loss and gradients of a block are made together and its logits are let go."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        N, V = len(hidden), len(bias)
        block = max(1, LOGITS_AT_ONCE // V)
        matrix = weight.to(hidden.dtype)
        d_hidden = torch.zeros_like(hidden)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        total = torch.zeros((), device=hidden.device)
        for start in range(0, N, block):
            part = slice(start, start + block)
            logits = (hidden[part] @ matrix.t()).float() + bias  # (block, V)
            normalizer = logits.logsumexp(dim=-1)  # (block,)
            wanted = targets[part, None]
            total += (normalizer - logits.gather(1, wanted)[:, 0]).sum()
            share = (logits - normalizer[:, None]).exp_()  # (block, V): d loss / d logits, but for the true word
            share.scatter_add_(1, wanted, torch.full_like(wanted, -1, dtype=share.dtype))
            d_bias += share.sum(dim=0)
            share = share.to(hidden.dtype)
            d_hidden[part] = share @ matrix
            d_weight += (share.t() @ hidden[part]).to(d_weight.dtype)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.count = N
        return total / N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scale = grads[0] / ctx.count
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * scale.to(d_hidden.dtype), d_weight * scale, d_bias * scale, None


def _rows(head: SoftmaxHead, ids: Tensor, sparse: bool) -> tuple[Tensor, Tensor]:
    # index_select: its gradient is added up in place, on CUDA in any order; that of head.bias[ids] is sorted first
    return nn.functional.embedding(ids, head.weight, sparse=sparse), head.bias.index_select(0, ids)
