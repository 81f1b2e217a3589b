"""The log-uniform sampler of negative words for the sampled softmax, without repetition, and expected counts.

The vocabulary is sorted by descending frequency, so the word of rank k is drawn with P(k) = ln((k+2)/(k+1)) / ln(V+1),
close to Zipf's law. Words are drawn until there are enough distinct ones; the number of draws determines the expected
counts that correct the loss. The rule is that of the reference implementation. Each step has its own seed, so no state
of the sampler needs to be saved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Sample(NamedTuple):
    """Distinct word ids (S,), and the number of draws that they took (a scalar tensor)."""

    ids: Tensor
    num_tries: Tensor


def draw(vocab_size: int, num_samples: int, seed: int) -> Sample:
    """`num_samples` distinct words in the order of their first draw; a function of the seed."""
    generator = torch.Generator().manual_seed(seed)
    num_draws = 4 * num_samples
    while True:
        uniform = torch.rand(num_draws, generator=generator, dtype=torch.float64)
        drawn = ((uniform * math.log(vocab_size + 1)).exp().long() - 1).clamp(0, vocab_size - 1)  # (num_draws,)
        ids, first = np.unique(drawn.numpy(), return_index=True)  # `first`: the first draw of each word
        if len(ids) >= num_samples:
            order = np.argsort(first)[:num_samples]
            return Sample(torch.from_numpy(ids[order]), torch.tensor(first[order[-1]] + 1))
        num_draws *= 4  # the last words of a small vocabulary take many draws; start over with more
        generator.manual_seed(seed)


def expected_count(ids: Tensor, num_tries: Tensor, vocab_size: int) -> Tensor:
    """The probability that each word is among the distinct words after `num_tries` draws: 1 - (1 - P)^num_tries."""
    rank = ids.double()
    probability = ((rank + 2) / (rank + 1)).log() / math.log(vocab_size + 1)
    return -torch.expm1(num_tries * torch.log1p(-probability))
