"""Training losses of one direction: sampled, full and adaptive softmax.

Each function takes top-layer outputs `hidden` (N, P) and the vocabulary ids of the words to predict, `targets` (N,). It
returns the mean loss in nats. The full softmax computes the logits in blocks of rows, forward and backward, so that its
memory is bounded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmo.kernels.api import SampledCrossEntropy, SoftmaxLosses
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.pretrain.train.sampler import Sample, expected_count

MAX_LOGITS = 1 << 26  # logits per block of the full softmax: 256 MB in float32


def sampled_softmax_loss(
    head: SoftmaxHead,
    hidden: Tensor,
    targets: Tensor,
    sample: Sample,
    *,
    sparse: bool = False,
    fused: SampledCrossEntropy | None = None,
) -> Tensor:
    """Cross entropy of each true word against the sampled words, with logits corrected by log expected counts.

    A sampled word that equals the true word of a row is excluded from that row. With `sparse`, the gradient of the
    softmax weight is a sparse tensor of the rows that were read. `fused` is a kernel that computes the same with less
    memory (see `elmo.kernels`); None: plain PyTorch.
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


def fused_softmax_losses(
    fused: SoftmaxLosses, head: SoftmaxHead, hidden: Tensor, targets: Tensor, samples: list[Sample]
) -> Tensor:
    """Losses (R,) of all directions through a kernel: sampled or, without samples, full; hidden (R, N, P)."""
    if not samples:
        return fused(head.weight, head.bias, hidden, targets)
    ids = torch.stack([sample.ids for sample in samples])  # (R, S)
    num_tries = torch.stack([sample.num_tries for sample in samples])[:, None]  # (R, 1)
    counts, true_counts = (expected_count(words, num_tries, head.vocab_size).log().float() for words in (ids, targets))
    return fused(head.weight, head.bias, hidden, targets, ids, counts, true_counts)


def fused_adaptive_losses(fused: SoftmaxLosses, head: AdaptiveHead, hidden: Tensor, targets: Tensor) -> Tensor:
    """Losses (R,) of all directions with the adaptive softmax, each of whose parts is a full softmax for the kernel.

    The first part has the frequent words and one row per cluster; the others score the words of one cluster, for the
    states whose true word is in it. hidden is (R, N, P), targets (R, N).
    """
    softmax = head.softmax
    starts = torch.tensor(softmax.cutoffs[:-1])  # of the clusters; the last element is the size of the vocabulary
    cluster = torch.bucketize(targets, starts, right=True)  # (R, N), counted from 1; 0: the word is frequent
    first_targets = torch.where(cluster == 0, targets, softmax.shortlist_size + cluster - 1)
    losses = list(fused(softmax.head.weight, softmax.head.bias, hidden, first_targets).unbind())
    for number, tail in enumerate(softmax.tail, start=1):
        project, rows = tail.parameters()  # (p, P), (n words, p)
        no_bias = rows.new_zeros(len(rows))
        for direction, is_member in enumerate(cluster == number):
            words = targets[direction, is_member] - softmax.cutoffs[number - 1]  # (n,)
            if len(words):
                states = nn.functional.linear(hidden[direction, is_member], project.to(hidden.dtype))  # (n, p)
                (loss,) = fused(rows, no_bias, states[None], words[None])
                losses[direction] = losses[direction] + loss * (len(words) / targets.shape[1])
    return torch.stack(losses) + _zero(head)


def _hits(targets: Tensor, sample: Sample, vocab_size: int) -> Tensor:
    """The index of each true word among the sampled words, (N,); -1 if it was not sampled."""
    index_of_word = torch.full((vocab_size,), -1, dtype=torch.int32, device=targets.device)  # (V,)
    index_of_word[sample.ids] = torch.arange(len(sample.ids), dtype=torch.int32, device=targets.device)
    return index_of_word[targets]


def full_softmax_loss(head: SoftmaxHead, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over the full vocabulary, in bounded memory."""
    loss: Tensor = _FullSoftmax.apply(hidden, head.weight, head.bias, targets)  # type: ignore[no-untyped-call]  # of torch
    return loss


def adaptive_softmax_loss(head: AdaptiveHead, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of the adaptive softmax (Grave et al. 2017): an exact distribution, cheap for frequent words."""
    return -head.log_probs(hidden, targets).mean() + _zero(head)


def _zero(head: AdaptiveHead) -> Tensor:
    """Zero. Adding it gives every cluster a gradient, which is zero if the batch has no word of the cluster.

    Processes that average their gradients must all have gradients of the same parameters.
    """
    return 0.0 * torch.stack([weight.sum() for weight in head.softmax.tail.parameters()]).sum()


class _FullSoftmax(torch.autograd.Function):
    """Computes loss and gradients of one block of rows after the other; the logits of a block are not stored."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        N, V = len(hidden), len(bias)
        block = max(1, MAX_LOGITS // V)
        matrix = weight.to(hidden.dtype)
        d_hidden = torch.zeros_like(hidden)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        total = torch.zeros((), device=hidden.device)
        for start in range(0, N, block):
            part = slice(start, start + block)
            logits = (hidden[part] @ matrix.t()).float() + bias  # (block, V)
            normalizer = logits.logsumexp(dim=-1)  # (block,)
            true_ids = targets[part, None]  # (block, 1)
            total += (normalizer - logits.gather(1, true_ids)[:, 0]).sum()
            d_logits = (logits - normalizer[:, None]).exp_()  # (block, V): probabilities, minus 1 at the true word
            d_logits.scatter_add_(1, true_ids, torch.full_like(true_ids, -1, dtype=d_logits.dtype))
            d_bias += d_logits.sum(dim=0)
            d_logits = d_logits.to(hidden.dtype)
            d_hidden[part] = d_logits @ matrix
            d_weight += (d_logits.t() @ hidden[part]).to(d_weight.dtype)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.count = N
        return total / N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scale = grads[0] / ctx.count
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * scale.to(d_hidden.dtype), d_weight * scale, d_bias * scale, None


def _rows(head: SoftmaxHead, ids: Tensor, sparse: bool) -> tuple[Tensor, Tensor]:
    """The softmax weights (n, P) and biases (n,) of the words `ids` (n,)."""
    # The gradient of index_select is added up in place, on CUDA in any order; that of head.bias[ids] is sorted first.
    return nn.functional.embedding(ids, head.weight, sparse=sparse), head.bias.index_select(0, ids)
