"""Packs padded rows into the layout of cuDNN, time step by time step without padding.

The indices are computed on the CPU, before a batch is moved to the device. torch's own packing reads the lengths from
the device in every layer, which synchronises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


@dataclass(frozen=True)
class Packing:
    """The N tokens of a padded batch in the order of time steps.

    indices (N,): position of each token in the flattened (B*T); within a step, longest row first. batch_sizes: number
    of rows of each step.
    """

    indices: Tensor
    batch_sizes: tuple[int, ...]

    def pack(self, vectors: Tensor) -> PackedSequence:
        """(B, T, D) as a packed sequence of N tokens."""
        return PackedSequence(vectors.flatten(0, 1).index_select(0, self.indices), torch.tensor(self.batch_sizes))

    def unpack(self, tokens: Tensor, B: int, T: int) -> Tensor:
        """(B, T, D) from packed tokens (N, D), zero at padding."""
        flat = tokens.new_zeros(B * T, tokens.shape[-1])  # (B*T, D)
        unpacked: Tensor = torch.unflatten(flat.index_copy(0, self.indices, tokens), 0, (B, T))  # (B, T, D)
        return unpacked


def make_packing(lengths: Sequence[int] | np.ndarray, T: int) -> Packing:
    """The packing of rows with the given numbers of tokens, padded on the right to T."""
    row_lengths = np.asarray(lengths, dtype=np.int64)  # (B,)
    order = np.argsort(-row_lengths, kind="stable")
    is_token = np.arange(row_lengths.max(initial=0))[:, None] < row_lengths[order]  # (longest, B)
    indices = order * T + np.arange(len(is_token))[:, None]  # (longest, B)
    return Packing(torch.from_numpy(indices[is_token]), tuple(is_token.sum(axis=1).tolist()))
