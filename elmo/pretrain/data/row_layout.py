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
from elmo.pretrain.data.sentence_order import SHUFFLE_WINDOW, SentenceOrder
from elmo.pretrain.data.stateless_random import derive_key, probability_threshold, random_uint64

BLOCK = 1 << 16  # sentences whose places are looked up at once


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

    `shuffle_key` None: shards and sentences in the order of the prepared text; otherwise the sentences of as many
    shards as have about `shuffle_window` sentences are shuffled together. `reset`: the probability that the state is
    reset before a sentence, and two integers from which the random choice is derived.
    """

    def __init__(
        self,
        split: Split,
        num_rows: int,
        *,
        shuffle_key: tuple[int, ...] | None,
        reset: tuple[float, int, int],
        num_epochs: int | None,
        shuffle_window: int = SHUFFLE_WINDOW,
    ) -> None:
        self._order = SentenceOrder(split, shuffle_key, shuffle_window)
        self._changes_by_epoch = shuffle_key is not None or bool(split.repetitions)
        self._reset, self._num_epochs = reset, num_epochs
        self._tokens_by_shard: dict[int, np.ndarray] = {}  # of the shards that rows currently use
        # the sentence of each row and its next position; position length + 1 means that the sentence is finished
        self._shard = np.zeros(num_rows, dtype=np.int64)
        self._start = np.zeros(num_rows, dtype=np.int64)
        self._length = np.full(num_rows, -1, dtype=np.int64)
        self._position = np.zeros(num_rows, dtype=np.int64)
        self._epoch = 0
        self._turn = 0  # index of the group of shards in the epoch
        self._cursor = 0  # index of the next sentence in the group's order
        self._loaded: tuple[int, int] | None = None  # (turn, epoch) of the group in memory
        self._load_group()

    def __getitem__(self, shard: int) -> np.ndarray:
        """The tokens of a shard, memory-mapped."""
        if shard not in self._tokens_by_shard:
            self._tokens_by_shard[shard] = self._order.shard_arrays(shard)[0]
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
            in_use = set(self._group.shards) | set(np.unique(self._shard)) | set(np.unique(shard))
            self._tokens_by_shard = {s: tokens for s, tokens in self._tokens_by_shard.items() if s in in_use}
        return Segments(row, shard, start, length, first, count, reset, full=bool((surplus >= 0).all()))

    def _take_sentences(self, needs: list[int]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Takes the next sentences for rows that each need so many positions.

        Returns the number of sentences per row, and (shard, start, length, 0, reset) of all of them.
        """
        num_taken: list[int] = []
        runs: list[tuple[np.ndarray, ...]] = []
        begin = cursor = self._cursor - self._block_begin  # both count from the start of the block
        positions, end = self._positions, len(self._positions)
        for need in needs:
            count = 0
            while need > 0:
                if cursor == end:
                    runs.append(self._sentence_run(begin, end))
                    begin = cursor
                    if not self._next_block():
                        break
                    begin = cursor = 0
                    positions, end = self._positions, len(self._positions)
                need -= positions[cursor]
                cursor += 1
                count += 1
            num_taken.append(count)
        runs.append(self._sentence_run(begin, cursor))
        self._cursor = self._block_begin + cursor
        sentences = runs[0] if len(runs) == 1 else tuple(np.concatenate(arrays) for arrays in zip(*runs, strict=True))
        return np.array(num_taken, dtype=np.int64), sentences

    def _sentence_run(self, begin: int, end: int) -> tuple[np.ndarray, ...]:
        """(shard, start, length, 0, reset) of sentences begin..end-1 of the current block."""
        shard, start, length = (array[begin:end] for array in self._block)
        probability, *key_numbers = self._reset
        reset = np.full(end - begin, probability == 1)
        if probability not in (0, 1):
            for number in np.unique(shard):
                here = np.flatnonzero(shard == number)
                draws = random_uint64(start[here], derive_key(*key_numbers, 1, self._epoch, int(number)))
                reset[here] = draws < np.uint64(probability_threshold(probability))
        return shard, start, length, np.zeros(end - begin, dtype=np.int64), reset

    def _next_block(self) -> bool:
        """Moves to the next block of sentences, if necessary of the next group or epoch; false if there is none."""
        block_end = self._block_begin + len(self._positions)
        if block_end < self._group.num_sentences:
            self._load_block(block_end)
            return True
        ends_epoch = self._turn + 1 == self._order.num_groups
        if ends_epoch and self._num_epochs is not None and self._epoch + 1 >= self._num_epochs:
            return False
        self._epoch, self._turn = (self._epoch + 1, 0) if ends_epoch else (self._epoch, self._turn + 1)
        self._cursor = 0
        self._load_group()
        return True

    def _load_group(self) -> None:
        """Opens the current group of shards and loads the block of sentences at the cursor."""
        turn_and_epoch = (self._turn, self._epoch if self._changes_by_epoch else 0)
        if self._loaded != turn_and_epoch:
            self._group = self._order.group(self._epoch, self._turn)
            self._loaded = turn_and_epoch
        self._load_block(self._cursor - self._cursor % BLOCK)

    def _load_block(self, begin: int) -> None:
        """Looks up where the sentences of the block at `begin` are."""
        self._block_begin = begin
        self._block = self._group.sentences(begin, min(begin + BLOCK, self._group.num_sentences))
        self._positions: list[int] = (self._block[2] + 1).tolist()  # a list, because its items are read one by one

    def state(self) -> dict[str, Any]:
        """The position in the text, as integers and small arrays; `restore` continues from it."""
        rows = {name: getattr(self, f"_{name}").copy() for name in _ROW_STATE}
        return {"epoch": self._epoch, "turn": self._turn, "cursor": self._cursor, **rows}

    def restore(self, state: dict[str, Any], *, with_rows: bool) -> None:
        """Continues from `state`; without `with_rows` every row starts with a new sentence."""
        self._epoch, self._turn, self._cursor = int(state["epoch"]), int(state["turn"]), int(state["cursor"])
        self._load_group()
        for name in _ROW_STATE if with_rows else ():
            getattr(self, f"_{name}")[:] = state[name]
        if not with_rows:
            self._length[:], self._position[:] = -1, 0


_ROW_STATE = ("shard", "start", "length", "position")
