"""Decides which sentences go to which row of a batch, in sentence numbers; `stream` then gathers the tokens.

The rule of the reference implementation: rows are filled one after the other, each to exactly T positions, from one
shared sequence of sentences. What a row takes depends on what the rows before it took, so this step is a loop; all
other steps are array operations.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from elmo.pretrain.data.prepared import Split
from elmo.pretrain.data.stateless_random import derive_key, permutation, probability_threshold, random_uint64

MAX_IN_MEMORY_TOKENS = 1_000_000


@dataclass(frozen=True)
class Segments:
    """Parts of sentences in the order of the rows: `count` positions of a sentence from its position `first` on.

    All arrays are (S,), where S is the number of segments.
    """

    row: np.ndarray
    shard: np.ndarray
    start: np.ndarray  # index of the sentence's first token in its shard
    length: np.ndarray  # tokens of the sentence; it has length + 1 positions
    first: np.ndarray
    count: np.ndarray
    reset: np.ndarray  # bool, the LSTM state is reset before the sentence
    full: bool  # every row has all its positions

    def select_rows(self, begin: int, end: int) -> Segments:
        """The segments of rows begin..end-1, with rows numbered from 0."""
        low, high = np.searchsorted(self.row, (begin, end))
        if begin == 0 and high == len(self.row):
            return self
        arrays = {f.name: getattr(self, f.name)[low:high] for f in fields(self) if f.name != "full"}
        return Segments(**arrays | {"row": arrays["row"] - begin}, full=self.full)


class RowFiller:
    """Fills the rows of one direction from a sequence of sentences, and stores where each row is in the text.

    `shuffle_key` None: shards and sentences in the order of the prepared text. `reset`: the probability that the state
    is reset before a sentence, and two integers from which the random choice is derived.
    """

    def __init__(
        self,
        split: Split,
        num_rows: int,
        *,
        shuffle_key: tuple[int, ...] | None,
        reset: tuple[float, int, int],
        num_epochs: int | None,
    ) -> None:
        self._split, self._shuffle_key, self._reset, self._num_epochs = split, shuffle_key, reset, num_epochs
        self._tokens_by_shard: dict[int, np.ndarray] = {}  # of the shards that rows currently use
        # the sentence of each row and its next position; position length + 1 means that the sentence is finished
        self._shard = np.zeros(num_rows, dtype=np.int64)
        self._start = np.zeros(num_rows, dtype=np.int64)
        self._length = np.full(num_rows, -1, dtype=np.int64)
        self._position = np.zeros(num_rows, dtype=np.int64)
        self._epoch = 0
        self._turn = 0  # index in the epoch's order of shards
        self._cursor = 0  # index of the next sentence in the shard's order of sentences
        self._loaded: tuple[int, int] | None = None  # (shard, epoch) of the sentence order in memory
        self._in_memory: tuple[np.ndarray, np.ndarray] | None = None  # tokens and offsets of a small text
        self._load_shard()

    def __getitem__(self, shard: int) -> np.ndarray:
        """The tokens of a shard, memory-mapped."""
        if shard not in self._tokens_by_shard:
            self._tokens_by_shard[shard] = self._shard_arrays(shard)[0]
        return self._tokens_by_shard[shard]

    def fill(self, num_steps: int) -> Segments:
        """The next num_steps positions of every row; fewer only when the last epoch is over."""
        left = self._length + 1 - self._position  # (B,), remaining positions of the row's current sentence
        short_rows = np.flatnonzero(left < num_steps)
        num_taken, new = self._take_sentences((num_steps - left[short_rows]).tolist())
        continued = left > 0
        per_row = continued.astype(np.int64)
        per_row[short_rows] += num_taken
        before = np.cumsum(per_row) - per_row  # (B,), segments of earlier rows
        continued_at = before[continued]
        row = np.repeat(np.arange(len(left)), per_row)
        is_new = np.ones(len(row), dtype=bool)
        is_new[continued_at] = False
        merged = []
        row_state = (self._shard, self._start, self._length, self._position)
        for current, taken in zip(row_state, new, strict=False):
            values = np.empty(len(row), dtype=np.int64)
            values[continued_at], values[is_new] = current[continued], taken
            merged.append(values)
        shard, start, length, first = merged
        reset = np.zeros(len(row), dtype=bool)
        reset[is_new] = new[4]
        count = length + 1 - first
        ends = np.concatenate([[0], np.cumsum(count)])
        surplus = ends[before + per_row] - ends[before] - num_steps  # (B,), negative where the text ended
        nonempty = per_row > 0
        last = (before + per_row - 1)[nonempty]
        count[last] -= surplus[nonempty].clip(0)
        self._shard[nonempty], self._start[nonempty], self._length[nonempty] = shard[last], start[last], length[last]
        self._position[nonempty] = (first + count)[last]
        if len(self._tokens_by_shard) > 1:
            in_use = set(np.unique(self._shard)) | set(np.unique(shard))
            self._tokens_by_shard = {s: tokens for s, tokens in self._tokens_by_shard.items() if s in in_use}
        return Segments(row, shard, start, length, first, count, reset, full=bool((surplus >= 0).all()))

    def _take_sentences(self, needs: list[int]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Takes the next sentences for rows that each need so many positions.

        Returns the number of sentences per row, and (shard, start, length, 0, reset) of all of them.
        """
        num_taken: list[int] = []
        runs: list[tuple[np.ndarray, ...]] = []
        begin = cursor = self._cursor
        positions, end = self._positions, len(self._positions)
        for need in needs:
            count = 0
            while need > 0:
                if cursor == end:
                    runs.append(self._sentence_run(begin, end))
                    if not self._next_shard():
                        self._cursor = begin = cursor
                        break
                    begin = cursor = 0
                    positions, end = self._positions, len(self._positions)
                need -= positions[cursor]
                cursor += 1
                count += 1
            num_taken.append(count)
        runs.append(self._sentence_run(begin, cursor))
        self._cursor = cursor
        sentences = runs[0] if len(runs) == 1 else tuple(np.concatenate(arrays) for arrays in zip(*runs, strict=True))
        return np.array(num_taken, dtype=np.int64), sentences

    def _sentence_run(self, begin: int, end: int) -> tuple[np.ndarray, ...]:
        """(shard, start, length, 0, reset) of sentences begin..end-1 in the order of the current shard."""
        starts, zeros = self._starts[begin:end], np.zeros(end - begin, dtype=np.int64)
        probability, *key_numbers = self._reset
        if probability in (0, 1):
            reset = np.full(end - begin, probability == 1)
        else:
            draws = random_uint64(starts, derive_key(*key_numbers, 1, self._epoch, self._current_shard))
            reset = draws < np.uint64(probability_threshold(probability))
        return zeros + self._current_shard, starts, self._lengths[begin:end], zeros, reset

    def _next_shard(self) -> bool:
        """Moves to the next shard, if necessary of the next epoch; false if there is none."""
        ends_epoch = self._turn + 1 == len(self._split.shards)
        if ends_epoch and self._num_epochs is not None and self._epoch + 1 >= self._num_epochs:
            return False
        self._epoch, self._turn = (self._epoch + 1, 0) if ends_epoch else (self._epoch, self._turn + 1)
        self._load_shard()
        return True

    def _load_shard(self) -> None:
        """Loads starts and lengths of the current shard's sentences, in the order of this epoch."""
        shard = self._turn
        if self._shuffle_key is not None:
            order = permutation(len(self._split.shards), derive_key(*self._shuffle_key, 2, self._epoch))
            shard = int(order[self._turn])
        shard_and_epoch = (shard, self._epoch if self._shuffle_key is not None else 0)
        self._current_shard = shard
        if self._loaded == shard_and_epoch:
            return
        self._tokens_by_shard[shard], offsets = self._shard_arrays(shard)
        starts, lengths = np.array(offsets[:-1]), np.diff(offsets)
        if self._shuffle_key is not None:
            order = permutation(len(lengths), derive_key(*self._shuffle_key, 3, self._epoch, shard))
            starts, lengths = starts[order], lengths[order]
        self._starts, self._lengths = starts, lengths
        self._positions: list[int] = (lengths + 1).tolist()  # a list, because its items are read one by one
        self._loaded = shard_and_epoch

    def _shard_arrays(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and offsets; a small text with one shard stays in memory, because every epoch reads it again."""
        if self._in_memory is not None:
            return self._in_memory
        tokens, offsets = self._split.shard(shard)
        if len(self._split.shards) == 1 and len(tokens) <= MAX_IN_MEMORY_TOKENS:
            self._in_memory = tokens.copy(), offsets.copy()
            return self._in_memory
        return tokens, offsets

    def state(self) -> dict[str, Any]:
        """The position in the text, as integers and small arrays; `restore` continues from it."""
        rows = {name: getattr(self, f"_{name}").copy() for name in _ROW_STATE}
        return {"epoch": self._epoch, "turn": self._turn, "cursor": self._cursor, **rows}

    def restore(self, state: dict[str, Any], *, with_rows: bool) -> None:
        """Continues from `state`; without `with_rows` every row starts with a new sentence."""
        self._epoch, self._turn, self._cursor = int(state["epoch"]), int(state["turn"]), int(state["cursor"])
        self._load_shard()
        for name in _ROW_STATE if with_rows else ():
            getattr(self, f"_{name}")[:] = state[name]
        if not with_rows:
            self._length[:], self._position[:] = -1, 0


_ROW_STATE = ("shard", "start", "length", "position")
