"""Which sentences stand in which row of a batch: the bookkeeping of `stream`, in sentence numbers, without any token.

The reference's rule: rows are filled one after the other, each to exactly T positions, from one shared run of
sentences. What a row takes depends on what the rows before it took, so this part is a loop; all else is arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from elmo.pretrain.data.prepared import Split
from elmo.pretrain.data.stateless_random import key_of, lots, share_limit, shuffled

SMALL_TOKENS = 1_000_000


@dataclass(frozen=True)
class Segments:
    """Runs of positions in row-major order, all (S,): `count` positions of a sentence, from its position `first` on."""

    row: np.ndarray
    shard: np.ndarray
    start: np.ndarray  # the sentence's first token in its shard
    length: np.ndarray  # its tokens; it has length + 1 positions
    first: np.ndarray
    count: np.ndarray
    reset: np.ndarray  # bool, the sentence starts from a fresh state
    full: bool  # every row has all its positions

    def of_rows(self, begin: int, end: int) -> Segments:
        """Only the rows begin..end, numbered from 0."""
        low, high = np.searchsorted(self.row, (begin, end))
        if begin == 0 and high == len(self.row):
            return self
        parts = {f.name: getattr(self, f.name)[low:high] for f in fields(self) if f.name != "full"}
        return Segments(**parts | {"row": parts["row"] - begin}, full=self.full)


class Rows:
    """The rows of one direction and the run of sentences they are filled from.

    key None: shards and sentences in their own order. reset: (probability, numbers that key the choice).
    """

    def __init__(
        self,
        split: Split,
        num_rows: int,
        *,
        key: tuple[int, ...] | None,
        reset: tuple[float, int, int],
        num_epochs: int | None,
    ) -> None:
        self._split, self._key, self._reset, self._num_epochs = split, key, reset, num_epochs
        self._open: dict[int, np.ndarray] = {}  # tokens of shards that rows stand in
        # each row's sentence and its next position; position length + 1: used up
        self._shard = np.zeros(num_rows, dtype=np.int64)
        self._start = np.zeros(num_rows, dtype=np.int64)
        self._length = np.full(num_rows, -1, dtype=np.int64)
        self._position = np.zeros(num_rows, dtype=np.int64)
        self._epoch = 0
        self._turn = 0  # which of the epoch's shards
        self._cursor = 0  # the next sentence of its order
        self._loaded: tuple[int, int] | None = None
        self._small: tuple[np.ndarray, np.ndarray] | None = None
        self._load()

    def __getitem__(self, shard: int) -> np.ndarray:
        """The tokens of a shard, memory-mapped."""
        if shard not in self._open:
            self._open[shard] = self._shard_arrays(shard)[0]
        return self._open[shard]

    def fill(self, num_steps: int) -> Segments:
        """The next num_steps positions of every row; fewer only when the last epoch is over."""
        left = self._length + 1 - self._position  # (B,), positions of the row's own sentence
        short = np.flatnonzero(left < num_steps)
        taken, new = self._take((num_steps - left[short]).tolist())
        continued = left > 0
        per_row = continued.astype(np.int64)
        per_row[short] += taken
        before = np.cumsum(per_row) - per_row  # (B,), segments of earlier rows
        old = before[continued]
        row = np.repeat(np.arange(len(left)), per_row)
        fresh = np.ones(len(row), dtype=bool)
        fresh[old] = False
        merged = []
        for mine, drawn in zip((self._shard, self._start, self._length, self._position), new, strict=False):
            values = np.empty(len(row), dtype=np.int64)
            values[old], values[fresh] = mine[continued], drawn
            merged.append(values)
        shard, start, length, first = merged
        reset = np.zeros(len(row), dtype=bool)
        reset[fresh] = new[4]
        count = length + 1 - first
        ends = np.concatenate([[0], np.cumsum(count)])
        surplus = ends[before + per_row] - ends[before] - num_steps  # (B,), negative where the text ran out
        some = per_row > 0
        last = (before + per_row - 1)[some]
        count[last] -= surplus[some].clip(0)
        self._shard[some], self._start[some], self._length[some] = shard[last], start[last], length[last]
        self._position[some] = (first + count)[last]
        if len(self._open) > 1:
            standing = set(np.unique(self._shard)) | set(np.unique(shard))
            self._open = {number: tokens for number, tokens in self._open.items() if number in standing}
        return Segments(row, shard, start, length, first, count, reset, full=bool((surplus >= 0).all()))

    def _take(self, needs: list[int]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Sentences for rows that need so many positions: how many each takes, and (shard, start, length, 0, reset)."""
        taken: list[int] = []
        runs: list[tuple[np.ndarray, ...]] = []
        begin = cursor = self._cursor
        positions, end = self._positions, len(self._positions)
        for need in needs:
            number = 0
            while need > 0:
                if cursor == end:
                    runs.append(self._run(begin, end))
                    if not self._next_shard():
                        self._cursor = begin = cursor
                        break
                    begin = cursor = 0
                    positions, end = self._positions, len(self._positions)
                need -= positions[cursor]
                cursor += 1
                number += 1
            taken.append(number)
        runs.append(self._run(begin, cursor))
        self._cursor = cursor
        whole = runs[0] if len(runs) == 1 else tuple(np.concatenate(parts) for parts in zip(*runs, strict=True))
        return np.array(taken, dtype=np.int64), whole

    def _run(self, begin: int, end: int) -> tuple[np.ndarray, ...]:
        """Sentences begin..end of the current shard's order."""
        starts, zeros = self._starts[begin:end], np.zeros(end - begin, dtype=np.int64)
        probability, *key = self._reset
        if probability in (0, 1):
            reset = np.full(end - begin, probability == 1)
        else:
            drawn = lots(starts, key_of(*key, 1, self._epoch, self._number))
            reset = drawn < np.uint64(share_limit(probability))
        return zeros + self._number, starts, self._lengths[begin:end], zeros, reset

    def _next_shard(self) -> bool:
        """Goes to the next shard, of the next epoch if need be; false when there is none."""
        ends_epoch = self._turn + 1 == len(self._split.shards)
        if ends_epoch and self._num_epochs is not None and self._epoch + 1 >= self._num_epochs:
            return False
        self._epoch, self._turn = (self._epoch + 1, 0) if ends_epoch else (self._epoch, self._turn + 1)
        self._load()
        return True

    def _load(self) -> None:
        """The order, starts and lengths of the sentences of the current shard."""
        number = self._turn
        if self._key is not None:
            number = int(shuffled(len(self._split.shards), key_of(*self._key, 2, self._epoch))[self._turn])
        wanted = (number, self._epoch if self._key is not None else 0)
        self._number = number
        if self._loaded == wanted:
            return
        self._open[number], offsets = self._shard_arrays(number)
        starts, lengths = np.array(offsets[:-1]), np.diff(offsets)
        if self._key is not None:
            order = shuffled(len(lengths), key_of(*self._key, 3, self._epoch, number))
            starts, lengths = starts[order], lengths[order]
        self._starts, self._lengths = starts, lengths
        self._positions: list[int] = (lengths + 1).tolist()  # a list, for its items are read one by one
        self._loaded = wanted

    def _shard_arrays(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and offsets; a small text that is one shard is held in memory, for it is begun again and again."""
        if self._small is not None:
            return self._small
        tokens, offsets = self._split.shard(number)
        if len(self._split.shards) == 1 and len(tokens) <= SMALL_TOKENS:
            self._small = tokens.copy(), offsets.copy()
            return self._small
        return tokens, offsets

    def state(self) -> dict[str, Any]:
        rows = {name: getattr(self, f"_{name}").copy() for name in _ROW_STATE}
        return {"epoch": self._epoch, "turn": self._turn, "cursor": self._cursor, **rows}

    def restore(self, state: dict[str, Any], *, with_rows: bool) -> None:
        self._epoch, self._turn, self._cursor = int(state["epoch"]), int(state["turn"]), int(state["cursor"])
        self._load()
        for name in _ROW_STATE if with_rows else ():
            getattr(self, f"_{name}")[:] = state[name]
        if not with_rows:
            self._length[:], self._position[:] = -1, 0


_ROW_STATE = ("shard", "start", "length", "position")
