"""Answer spans from scores of starts and ends: the best span, and the loss of the gold spans."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.tasks.layers.attention import masked_log_softmax


def best_spans(starts: Tensor, ends: Tensor, mask: Tensor, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """First and last token (B,) of the best span of at most max_length tokens per row, and its probability (B,).

    starts and ends (B, T) are scores. Start and end are independent, so the probability is a product; spans longer than
    the limit are excluded.
    """
    joint = masked_log_softmax(starts, mask)[:, :, None] + masked_log_softmax(ends, mask)[:, None]  # (B, T, T)
    T = mask.shape[1]
    allowed = torch.ones(T, T, dtype=torch.bool, device=mask.device).triu().tril(max_length - 1)  # (T, T)
    flat = joint.masked_fill(~allowed, float("-inf")).flatten(1)  # (B, T*T)
    log_probability, index = flat.max(dim=1)
    return index // T, index % T, log_probability.exp()


def span_loss(starts: Tensor, ends: Tensor, mask: Tensor, gold_starts: Tensor, gold_ends: Tensor) -> Tensor:
    """Negative log probability of any gold start plus that of any gold end; mean over rows.

    gold_starts and gold_ends (B, T) are true where a gold answer begins or ends; a row may have several answers.
    """
    of_start, of_end = (
        torch.logsumexp(masked_log_softmax(scores, mask).masked_fill(~gold, -1e30), dim=1)  # (B,)
        for scores, gold in ((starts, gold_starts), (ends, gold_ends))
    )
    return -(of_start + of_end).mean()
