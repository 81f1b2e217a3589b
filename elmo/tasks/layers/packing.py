"""Padded rows as cuDNN reads them: step by step, without padding. Worked out on the CPU, before a batch is moved.

torch's own packing asks the device for lengths in every layer and waits for the answer.
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
    """places (N,): each step's tokens, longest row first, in the flattened (B*T); sizes: rows of each step."""

    places: Tensor
    sizes: tuple[int, ...]

    def pack(self, vectors: Tensor) -> PackedSequence:
        """(B, T, D) as a packed sequence of N tokens."""
        return PackedSequence(vectors.flatten(0, 1).index_select(0, self.places), torch.tensor(self.sizes))

    def unpack(self, packed: PackedSequence, B: int, T: int) -> Tensor:
        """(B, T, D) of a packed sequence, padding zero."""
        flat = packed.data.new_zeros(B * T, packed.data.shape[-1])
        return flat.index_copy(0, self.places, packed.data).unflatten(0, (B, T))


def make_packing(lengths: Sequence[int] | np.ndarray, T: int) -> Packing:
    """Of rows with so many tokens each, padded on the right to T."""
    known = np.asarray(lengths, dtype=np.int64)  # (B,)
    order = np.argsort(-known, kind="stable")
    inside = np.arange(known.max(initial=0))[:, None] < known[order]  # (longest, B)
    places = order * T + np.arange(len(inside))[:, None]  # (longest, B)
    return Packing(torch.from_numpy(places[inside]), tuple(inside.sum(axis=1).tolist()))
