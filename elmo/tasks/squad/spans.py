"""From scores of starts and ends to answers: the best span, and the loss of the gold ones."""

from __future__ import annotations

import torch
from torch import Tensor

from elmo.tasks.layers.attention import masked_log_softmax


def best_spans(starts: Tensor, ends: Tensor, mask: Tensor, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """First and last token (B,) of each row's best span of at most max_length tokens, and its probability (B,).

    starts and ends (B, T) are scores; start and end are independent, and spans beyond the limit are left out.
    """
    joint = masked_log_softmax(starts, mask)[:, :, None] + masked_log_softmax(ends, mask)[:, None]  # (B, T, T)
    T = mask.shape[1]
    legal = torch.ones(T, T, dtype=torch.bool, device=mask.device).triu().tril(max_length - 1)  # (T, T)
    flat = joint.masked_fill(~legal, float("-inf")).flatten(1)  # (B, T*T)
    value, place = flat.max(dim=1)
    return place // T, place % T, value.exp()


def span_loss(starts: Tensor, ends: Tensor, mask: Tensor, gold_starts: Tensor, gold_ends: Tensor) -> Tensor:
    """Minus the log of what the scores give to any gold start, and to any gold end; mean over rows.

    gold_starts and gold_ends (B, T) are true where a gold answer begins or ends: with several, any will do.
    """
    sides = [
        torch.logsumexp(masked_log_softmax(scores, mask).masked_fill(~gold, -1e30), dim=1)
        for scores, gold in ((starts, gold_starts), (ends, gold_ends))
    ]
    return -(sides[0] + sides[1]).mean()
