"""The input tensors of a training step: distinct word types, index, state resets, targets and sampled negatives.

A prefetching thread builds them from NumPy arrays, so that the device never waits for them; they are then copied to the
device in one go. On the data path this is between `stream` and `step`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elmo.pretrain.data.stream import LMBatch
from elmo.pretrain.train.sampler import Sample, draw

BUCKETS_PER_DOUBLING = 16  # sizes between a power of two and the next, so that few CUDA graphs are needed


@dataclass(frozen=True)
class StepInputs:
    """Some rows of a batch as tensors: R directions, T positions, B rows. T is before B, as the LSTM reads it."""

    types: Tensor  # (N,), the distinct word types; after the last one come repeats of it up to the bucket size
    type_index: Tensor  # (R, T, B), the index in `types` of the word that is read
    resets: Tensor | None  # (R, T, B), whether the row's state is zeroed before this position; None: never
    targets: Tensor  # (R, T*B), the vocabulary ids of the words to predict
    negatives: Tensor | None  # (R, S), sampled vocabulary ids; None: the softmax scores the full vocabulary
    num_tries: Tensor | None  # (R,), how many draws the negatives took

    @property
    def samples(self) -> list[Sample]:
        """The negatives of each direction; empty for a full softmax."""
        if self.negatives is None or self.num_tries is None:
            return []
        return [Sample(self.negatives[d], self.num_tries[d]) for d in range(len(self.negatives))]

    def tensors(self) -> dict[str, Tensor]:
        """Field name -> tensor, without the fields that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def to(self, device: torch.device) -> StepInputs:
        """A copy on the device; the copy from pinned memory is asynchronous."""
        return StepInputs(**vars(self) | {k: v.to(device, non_blocking=True) for k, v in self.tensors().items()})

    def pinned(self) -> StepInputs:
        """A copy in pinned memory, from which a GPU copies asynchronously."""
        return StepInputs(**vars(self) | {k: v.pin_memory() for k, v in self.tensors().items()})


class InputBuilder:
    """Builds StepInputs for a model of `num_directions` over `num_types` word types. It is not thread-safe.

    `with_resets`: `resets` is always a tensor, even for a batch without a reset. `bucketed`: the number of distinct
    types is rounded up by `bucket_size`, so that few shapes occur.
    """

    def __init__(self, num_types: int, num_directions: int, *, with_resets: bool, bucketed: bool) -> None:
        self._index_of_type = np.zeros(num_types, dtype=np.int32)
        self._is_used = np.zeros(num_types, dtype=bool)
        self._num_directions, self._with_resets, self._bucketed = num_directions, with_resets, bucketed

    def build(self, batch: LMBatch, rows: slice, samples: list[Sample]) -> StepInputs:
        """The inputs of the given rows of a batch."""
        directions = [batch.forward, batch.backward][: self._num_directions]
        inputs = np.stack([d.inputs[rows].T for d in directions])  # (R, T, B)
        self._is_used[inputs] = True
        distinct = np.flatnonzero(self._is_used).astype(np.int32)  # (N,)
        self._is_used[distinct] = False
        self._index_of_type[distinct] = np.arange(len(distinct), dtype=np.int32)
        if self._bucketed:
            distinct = np.pad(distinct, (0, bucket_size(len(distinct)) - len(distinct)), mode="edge")
        resets = np.stack([d.resets[rows].T for d in directions])  # (R, T, B)
        targets = np.stack([d.targets[rows].T.reshape(-1) for d in directions])  # (R, T*B)
        return StepInputs(
            types=torch.from_numpy(distinct),
            type_index=torch.from_numpy(self._index_of_type[inputs]),
            resets=torch.from_numpy(resets) if self._with_resets or resets.any() else None,
            targets=torch.from_numpy(targets).long(),
            negatives=torch.stack([sample.ids for sample in samples]) if samples else None,
            num_tries=torch.stack([sample.num_tries for sample in samples]) if samples else None,
        )


def bucket_size(count: int) -> int:
    """The count rounded up to the next bucket size; there are 16 sizes between a power of two and the next."""
    width = max(BUCKETS_PER_DOUBLING, 1 << max(0, count - 1).bit_length()) // (2 * BUCKETS_PER_DOUBLING)
    return -(-count // max(1, width)) * max(1, width)


def draw_samples(vocab_size: int, num_samples: int, seed: int, step: int, num_directions: int) -> list[Sample]:
    """The negatives of each direction for a step, the same on every process and device."""
    seeds = [step_seed(seed, step, "negatives", direction) for direction in range(num_directions)]
    return [draw(vocab_size, num_samples, direction_seed) for direction_seed in seeds]


def step_seed(seed: int, step: int, purpose: str, index: int = 0) -> int:
    """The random seed for one purpose of one step: a hash of the run's seed, the step, the purpose and an index."""
    text = f"{seed}/{step}/{purpose}/{index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
