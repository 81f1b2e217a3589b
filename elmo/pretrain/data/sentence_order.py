"""The order in which an epoch reads the sentences of a text: groups of shards, whose sentences are shuffled together.

Shards follow the order of the text, so one shard is often from one source. A model that reads shard after shard forgets
one source while it learns the next; sentences of many shards are therefore mixed. The number of sentences in a group is
limited because their order is held in memory and their tokens are read at random places. With several languages and a
temperature, the sentences of some languages are repeated and those of others are left out (see `languages`).
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass

import numpy as np

from elmo.pretrain.data.languages import count_occurrences
from elmo.pretrain.data.prepared import Split
from elmo.pretrain.data.stateless_random import derive_key, permutation

SHUFFLE_WINDOW = 1 << 24  # sentences that are shuffled together, about 350 million words: 64 MiB per direction
MAX_IN_MEMORY_TOKENS = 1_000_000


@dataclass(frozen=True)
class SentenceGroup:
    """The sentences of several shards in one order."""

    shards: np.ndarray  # (G,) int64, numbers of the shards
    offsets: tuple[np.ndarray, ...]  # of each shard
    order: np.ndarray | None  # (N,) uint32, positions in the concatenated shards; None: their own order

    @property
    def num_sentences(self) -> int:
        """The number of sentences that are read, with repetitions."""
        if self.order is not None:
            return len(self.order)
        return sum(len(offsets) - 1 for offsets in self.offsets)

    def sentences(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(shard, start, length) of sentences begin..end-1 of the order, each (end - begin,) int64."""
        numbers = np.arange(begin, end) if self.order is None else self.order[begin:end].astype(np.int64)
        if len(self.offsets) == 1:
            start, stop = self.offsets[0][numbers], self.offsets[0][numbers + 1]
            return np.full(len(numbers), self.shards[0]), start, stop - start
        counts = np.array([len(offsets) - 1 for offsets in self.offsets])
        first = np.cumsum(counts) - counts
        member = np.searchsorted(first, numbers, side="right") - 1  # (end - begin,), index in `shards`
        start, stop = np.empty(len(numbers), dtype=np.int64), np.empty(len(numbers), dtype=np.int64)
        for index in np.unique(member):
            here = np.flatnonzero(member == index)
            inside = numbers[here] - first[index]
            start[here], stop[here] = self.offsets[index][inside], self.offsets[index][inside + 1]
        return self.shards[member], start, stop - start


class SentenceOrder:
    """Divides the shards of a split into groups, differently in every epoch, and opens a group at a time.

    `shuffle_key` None: every shard is a group, in the order of the text, and its sentences are in their own order.
    `window` is the number of sentences that a group may have; a group has at least one shard.
    """

    def __init__(self, split: Split, shuffle_key: tuple[int, ...] | None, window: int) -> None:
        self._split, self._shuffle_key = split, shuffle_key
        self.num_groups = num_groups(split, window) if shuffle_key is not None else len(split.shards)
        self._in_memory: tuple[np.ndarray, np.ndarray] | None = None  # tokens and offsets of a small text

    def shards(self, epoch: int, turn: int) -> np.ndarray:
        """The shards of the group that is read in this turn of the epoch."""
        shards = np.arange(len(self._split.shards))
        if self._shuffle_key is not None:
            shards = permutation(len(shards), derive_key(*self._shuffle_key, 2, epoch))
        return np.array_split(shards, self.num_groups)[turn]

    def group(self, epoch: int, turn: int) -> SentenceGroup:
        """The group that is read in this turn of the epoch."""
        shards = self.shards(epoch, turn)
        arrays = [self.shard_arrays(int(shard)) for shard in shards]
        offsets = tuple(offsets for _, offsets in arrays)
        if len(arrays) > 1:
            for tokens, _ in arrays:
                _read_ahead(tokens)
        sampled = self._sampled_sentences(epoch, shards) if self._split.repetitions else None
        if self._shuffle_key is None:
            return SentenceGroup(shards, offsets, sampled)
        num_sentences = sum(len(o) - 1 for o in offsets)
        num_read = num_sentences if sampled is None else len(sampled)
        order = permutation(num_read, derive_key(*self._shuffle_key, 3, epoch, *shards.tolist()))
        if sampled is not None:
            order = sampled[order]
        return SentenceGroup(shards, offsets, order.astype(np.uint32 if num_sentences < 1 << 32 else np.int64))

    def _sampled_sentences(self, epoch: int, shards: np.ndarray) -> np.ndarray:
        """The sentences that the epoch reads, repeated ones several times, as positions in the concatenated shards."""
        counts = [
            count_occurrences(
                np.asarray(self._split.shard_languages(shard)),
                self._split.repetitions,
                epoch,
                derive_key(*(self._shuffle_key or ()), 4, shard),
            )
            for shard in shards.tolist()
        ]
        every = np.concatenate(counts)
        return np.repeat(np.arange(len(every)), every)

    def shard_arrays(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and offsets; a small text with one shard stays in memory, because every epoch reads it again."""
        if self._in_memory is not None:
            return self._in_memory
        tokens, offsets = self._split.shard(shard)
        if len(self._split.shards) == 1 and len(tokens) <= MAX_IN_MEMORY_TOKENS:
            self._in_memory = tokens.copy(), offsets.copy()
            return self._in_memory
        return tokens, offsets


def num_groups(split: Split, window: int) -> int:
    """The number of groups of shards with about `window` sentences each; with window 0 every shard is a group."""
    num_shards = len(split.shards)
    return min(num_shards, max(1, math.ceil(split.num_sentences / window))) if window else num_shards


def _read_ahead(tokens: np.ndarray) -> None:
    """Asks the system to read a memory-mapped array in one go, because its pages will be needed in random order."""
    mapped = getattr(tokens, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_WILLNEED"):
        mapped.madvise(mmap.MADV_WILLNEED)
