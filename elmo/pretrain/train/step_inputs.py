"""What a step is fed: a batch's distinct words, which of them stands where, what follows, and the sampled words.

Made by the thread that prefetches batches, from arrays alone, so that the device never waits for it; then copied to the
device at once. Between `stream` and `step` on the data path.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elmo.pretrain.data.stream import LMBatch
from elmo.pretrain.train.sampler import Sample, draw

EVEN = 16  # the number of distinct words is rounded up by at most a part in so many, for graphs to be replayed


@dataclass(frozen=True)
class Feed:
    """Rows of a batch as tensors; D directions, B rows, T steps, which come first, as the LSTM takes them."""

    types: Tensor  # (N,), the distinct word types; those behind the last one used repeat a word and stand nowhere
    places: Tensor  # (D, T, B), which of the types is read
    fresh: Tensor | None  # (D, T, B), the row forgets before this step; None: never
    targets: Tensor  # (D, T*B), the words that follow
    sampled: Tensor | None  # (D, S), negatives; None: the whole vocabulary is scored
    tries: Tensor | None  # (D,), the draws they took

    @property
    def samples(self) -> list[Sample]:
        """Each direction's negatives."""
        if self.sampled is None or self.tries is None:
            return []
        return [Sample(self.sampled[d], self.tries[d]) for d in range(len(self.sampled))]

    def tensors(self) -> dict[str, Tensor]:
        """All but what is None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def to(self, device: torch.device) -> Feed:
        return Feed(**vars(self) | {k: v.to(device, non_blocking=True) for k, v in self.tensors().items()})

    def pinned(self) -> Feed:
        """In memory that a GPU can copy from while others work."""
        return Feed(**vars(self) | {k: v.pin_memory() for k, v in self.tensors().items()})


class Feeder:
    """Makes feeds for a model with so many directions over so many word types; not to be shared by threads."""

    def __init__(self, num_types: int, num_directions: int, *, resets: bool, even: bool) -> None:
        self._number = np.zeros(num_types, dtype=np.int32)
        self._used = np.zeros(num_types, dtype=bool)
        self._num_directions, self._resets, self._even = num_directions, resets, even

    def feed(self, batch: LMBatch, rows: slice, samples: list[Sample]) -> Feed:
        """Some of a batch's rows."""
        directions = [batch.forward, batch.backward][: self._num_directions]
        inputs = np.stack([d.inputs[rows].T for d in directions])  # (D, T, B)
        self._used[inputs] = True
        distinct = np.flatnonzero(self._used).astype(np.int32)  # (N,)
        self._used[distinct] = False
        self._number[distinct] = np.arange(len(distinct), dtype=np.int32)
        if self._even:
            distinct = np.pad(distinct, (0, even_number(len(distinct)) - len(distinct)), mode="edge")
        resets = np.stack([d.resets[rows].T for d in directions])  # (D, T, B)
        targets = np.stack([d.targets[rows].T.reshape(-1) for d in directions])  # (D, T*B)
        return Feed(
            types=torch.from_numpy(distinct),
            places=torch.from_numpy(self._number[inputs]),
            fresh=torch.from_numpy(resets) if self._resets or resets.any() else None,
            targets=torch.from_numpy(targets).long(),
            sampled=torch.stack([sample.ids for sample in samples]) if samples else None,
            tries=torch.stack([sample.num_tries for sample in samples]) if samples else None,
        )


def even_number(count: int) -> int:
    """The next of the numbers that graphs are made for: 16 of them between a power of two and the next."""
    part = max(EVEN, 1 << max(0, count - 1).bit_length()) // (2 * EVEN)
    return -(-count // max(1, part)) * max(1, part)


def draw_samples(vocab_size: int, num_samples: int, seed: int, number: int, num_directions: int) -> list[Sample]:
    """Negatives of each direction for a step, the same on every process and device."""
    seeds = [step_seed(seed, number, "negatives", d) for d in range(num_directions)]
    return [draw(vocab_size, num_samples, one) for one in seeds]


def step_seed(seed: int, number: int, purpose: str, index: int = 0) -> int:
    """A seed for one purpose of one step that no other step shares."""
    text = f"{seed}/{number}/{purpose}/{index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
