"""Negative words for the sampled softmax: log-uniform by rank, each at most once, with their expected counts.

Words stand in the vocabulary by descending frequency, so rank k is drawn with P(k) = ln((k+2)/(k+1)) / ln(V+1), close
to Zipf's law. Drawing goes on until enough distinct words are found; how many draws that took sets the expected counts
that correct the loss. Same rule as the reference's sampler; each step has a seed of its own, so nothing needs saving.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Sample(NamedTuple):
    """Distinct word ids (S,), and how many draws (a scalar tensor) it took to find them."""

    ids: Tensor
    num_tries: Tensor


def draw(vocab_size: int, num_samples: int, seed: int) -> Sample:
    """`num_samples` distinct words in the order they came up, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    num_draws = 4 * num_samples
    while True:
        uniform = torch.rand(num_draws, generator=generator, dtype=torch.float64)
        drawn = ((uniform * math.log(vocab_size + 1)).exp().long() - 1).clamp(0, vocab_size - 1)  # (num_draws,)
        ids, first = np.unique(drawn.numpy(), return_index=True)  # `first`: when each word first came up
        if len(ids) >= num_samples:
            order = np.argsort(first)[:num_samples]
            return Sample(torch.from_numpy(ids[order]), torch.tensor(first[order[-1]] + 1))
        num_draws *= 4  # a small vocabulary takes long until its last words come up; start over with more draws
        generator.manual_seed(seed)


def expected_count(ids: Tensor, num_tries: Tensor, vocab_size: int) -> Tensor:
    """How often a word is expected among the distinct ones after so many draws: 1 - (1 - P)^tries."""
    rank = ids.double()
    probability = ((rank + 2) / (rank + 1)).log() / math.log(vocab_size + 1)
    return -torch.expm1(num_tries * torch.log1p(-probability))
