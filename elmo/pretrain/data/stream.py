"""Prepared text into batches for the language model: continuous rows for training, whole sentences for measuring.

`ContinuousStream` fills rows as the reference does: each direction has its own order of sentences, each row takes the
next one whenever its own is used up, and what does not fit continues in the same row of the next batch. A sentence of n
tokens is n + 1 predictions: forward <S> w1 .. wn </S>, backward </S> wn .. w1 <S>, each position predicting the next.
The place in the data is a few numbers: `state` and `restore` continue bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.row_layout import Rows, Segments
from elmo.settings import changed_settings
from elmo.text.batch import plan_batches


@dataclass(frozen=True)
class Direction:
    """One direction's part of a batch, all (B, T): row r, position t reads inputs and is to predict targets."""

    inputs: np.ndarray  # int32, type ids (rows of PreparedData.type_chars)
    targets: np.ndarray  # int32, vocabulary ids
    resets: np.ndarray  # bool, the row's state is zeroed before this position is read
    mask: np.ndarray | None  # bool, the prediction counts, false is padding; None: all count


@dataclass(frozen=True)
class LMBatch:
    """Both directions; in training row r of the one and of the other are different text."""

    forward: Direction
    backward: Direction
    epoch: float = 0.0  # passes over the text that a stream has delivered, this batch included

    @property
    def num_predictions(self) -> tuple[int, int]:
        """How many predictions count, forward and backward."""
        forward, backward = (
            d.inputs.size if d.mask is None else int(d.mask.sum()) for d in (self.forward, self.backward)
        )
        return forward, backward


class ContinuousStream:
    """An iterator of LMBatch: num_rows continuous rows of num_steps positions for each direction.

    shuffle: shards in a seeded order without replacement, sentences shuffled inside each, anew every epoch and for each
    direction; off: the order of the prepared text, both directions the same sentences. reset: the probability that a
    sentence starts from a fresh state (0: always carried, as the reference trains; 1: never). num_epochs None: endless;
    else the last incomplete batch is dropped (as the reference does) or, with last="pad", masked, so that every
    prediction is counted once. With world_size processes each gets num_rows of world_size * num_rows rows, the same as
    one process would get at once: rank 0 the first ones.
    """

    def __init__(
        self,
        data: PreparedData,
        num_rows: int,
        num_steps: int,
        *,
        split: str = "train",
        seed: int = 0,
        shuffle: bool = True,
        reset: float = 0.0,
        num_epochs: int | None = None,
        last: str = "drop",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if num_rows < 1 or num_steps < 1 or not 0 <= rank < world_size or (num_epochs is not None and num_epochs < 1):
            raise ConfigError(f"A stream of {num_rows} rows x {num_steps} steps, rank {rank} of {world_size}.")
        if not 0 <= reset <= 1 or last not in ("drop", "pad"):
            raise ConfigError(f"reset is {reset} and last is {last!r}; expected 0 to 1, and drop or pad.")
        if data.split(split).num_sentences == 0:
            raise DataError(
                f"{data.folder} has no {split} text.", "Prepare it with a held-out share or held-out files."
            )
        self.data, self.split = data, split
        self.num_rows, self.num_steps, self.world_size, self.rank = num_rows, num_steps, world_size, rank
        self.seed, self.shuffle, self.pads = seed, shuffle, last == "pad"
        self.num_batches = 0  # delivered so far
        rows = num_rows * world_size
        self._forward, self._backward = (
            Rows(
                data.split(split),
                rows,
                key=(seed, d) if shuffle else None,
                reset=(reset, seed, d),
                num_epochs=num_epochs,
            )
            for d in (0, 1)
        )

    @property
    def positions_per_epoch(self) -> int:
        """Predictions a direction in one pass over the text: tokens + sentences."""
        return self.data.split(self.split).num_positions

    @property
    def epochs(self) -> float:
        """How many passes over the text the batches delivered so far amount to."""
        return self.num_batches * self.num_rows * self.world_size * self.num_steps / self.positions_per_epoch

    def __iter__(self) -> Iterator[LMBatch]:
        return self

    def __next__(self) -> LMBatch:
        filled = [rows.fill(self.num_steps) for rows in (self._forward, self._backward)]
        if self.pads and not any(len(segments.row) for segments in filled):
            raise StopIteration
        if not self.pads and not all(segments.full for segments in filled):
            raise StopIteration
        self.num_batches += 1
        first = self.rank * self.num_rows
        mine = [segments.of_rows(first, first + self.num_rows) for segments in filled]
        return LMBatch(
            forward=_gather(self._forward, mine[0], self.num_rows, self.num_steps, self.data, backward=False),
            backward=_gather(self._backward, mine[1], self.num_rows, self.num_steps, self.data, backward=True),
            epoch=self.epochs,
        )

    def state(self) -> dict[str, Any]:
        """The place after the last batch, as whole numbers and small arrays; the same on every rank."""
        return {
            "settings": self._settings(),
            "num_batches": self.num_batches,
            "forward": self._forward.state(),
            "backward": self._backward.state(),
        }

    def restore(self, state: dict[str, Any], *, other_rows: bool = False) -> None:
        """Continues where `state` was taken; other data, seed or order are refused with the differences.

        Another number of rows is refused too, unless `other_rows`: then the order of sentences continues but every row
        starts with a new one, and what the old rows had not finished is left out.
        """
        mine = self._settings()
        same_rows = state["settings"]["rows"] == mine["rows"]
        ignored = {"rows"} if other_rows else set()
        if changed := changed_settings(state["settings"], mine, ignore=ignored):
            lines = [f"{name}: {before!r} then, {after!r} now" for name, (before, after) in changed.items()]
            raise ConfigError("The place in the text was saved by another run.", "\n  ".join(lines))
        self.num_batches = state["num_batches"]
        self._forward.restore(state["forward"], with_rows=same_rows)
        self._backward.restore(state["backward"], with_rows=same_rows)

    def _settings(self) -> dict[str, Any]:
        rows = self.num_rows * self.world_size
        settings = {"data": self.data.fingerprint, "split": self.split, "rows": rows, "shuffle": self.shuffle}
        return settings | {"seed": self.seed}


def sentence_batches(
    data: PreparedData,
    split: str = "heldout",
    *,
    max_tokens: int = 4096,
    max_words: int | None = None,
    sentences: range | None = None,
) -> Iterator[LMBatch]:
    """Every sentence once, from a fresh state: padded batches of B rows x T positions, B * T at most max_tokens.

    Both directions hold the same sentences in the same rows. A longer sentence is a batch of its own. `sentences` picks
    some by number (see PreparedData.heldout_sources), max_words evenly spaced ones of about so many words together.
    Similar lengths sit together, within windows of many sentences.
    """
    text = data.split(split)
    chosen = range(text.num_sentences) if sentences is None else sentences
    if max_words is not None and chosen:
        words = text.num_tokens * len(chosen) / text.num_sentences
        chosen = chosen[:: max(1, round(words / max(max_words, 1)))]
    first = 0
    for number, (count, _) in enumerate(text.shards):
        tokens, offsets = text.shard(number)
        inside = np.array([i - first for i in chosen if first <= i < first + count], dtype=np.int64)
        first += count
        for start in range(0, len(inside), 1 << 16):
            window = inside[start : start + (1 << 16)]
            lengths = offsets[window + 1] - offsets[window]
            # plan_batches counts both boundaries, a direction reads one of them
            for group in plan_batches((lengths - 1).clip(1).tolist(), max_tokens=max_tokens, max_rows=max_tokens):
                yield _padded(tokens, offsets[window[group]], lengths[group], data)


def _padded(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray, data: PreparedData) -> LMBatch:
    rows = np.arange(len(starts))
    segments = Segments(
        row=rows,
        shard=np.zeros(len(starts), dtype=np.int64),
        start=starts,
        length=lengths,
        first=np.zeros(len(starts), dtype=np.int64),
        count=lengths + 1,
        reset=np.ones(len(starts), dtype=bool),
        full=False,
    )
    shape = len(starts), int(lengths.max()) + 1
    forward, backward = (_gather({0: tokens}, segments, *shape, data, backward=b) for b in (False, True))
    return LMBatch(forward, backward)


def _gather(
    shards: Any, segments: Segments, num_rows: int, num_steps: int, data: PreparedData, *, backward: bool
) -> Direction:
    """The batch that runs of sentences describe. `shards[number]` are a shard's tokens."""
    count, cells = segments.count, num_rows * num_steps
    before = np.cumsum(count) - count  # (S,), positions of earlier segments
    total = int(count.sum())
    # the address of the target at a segment's first position; it moves by one a position
    address = segments.start + (segments.length - 1 - segments.first if backward else segments.first)  # (S,)
    step = np.arange(total)
    if backward:
        addresses = np.repeat(address + before, count) - step  # (positions,)
    else:
        addresses = np.repeat(address - before, count) + step  # (positions,)
    behind = addresses + (1 if backward else -1)  # where each input stands
    if len(segments.shard) == 0 or (segments.shard == segments.shard[0]).all():
        tokens = shards[int(segments.shard[0])] if total else np.zeros(1, dtype=np.int32)
        targets, inputs = tokens.take(addresses, mode="clip"), tokens.take(behind, mode="clip")
    else:
        targets, inputs = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int32)
        shard_of = np.repeat(segments.shard, count)
        for shard in np.unique(segments.shard):
            here = np.flatnonzero(shard_of == shard)
            targets[here] = shards[int(shard)].take(addresses[here], mode="clip")
            inputs[here] = shards[int(shard)].take(behind[here], mode="clip")
    begin, end = (data.eos, data.bos) if backward else (data.bos, data.eos)
    targets[targets >= data.vocab_size] = data.unk
    starting = segments.first == 0
    ending = segments.first + count == segments.length + 1
    inputs[before[starting]] = begin
    targets[(before + count - 1)[ending]] = end
    resets = np.zeros(total, dtype=bool)
    resets[before[starting & segments.reset]] = True
    if total == cells:  # every row is full
        shape = num_rows, num_steps
        return Direction(inputs.reshape(shape), targets.reshape(shape), resets.reshape(shape), None)
    filled_before = before - before[np.searchsorted(segments.row, segments.row)]  # (S,), in the same row
    places = np.repeat(segments.row * num_steps + filled_before - before, count) + step  # (positions,)
    spread = []
    for values, empty in ((inputs, begin), (targets, end), (resets, False), (np.ones(total, dtype=bool), False)):
        whole = np.full(cells, empty, dtype=values.dtype)
        whole[places] = values
        spread.append(whole.reshape(num_rows, num_steps))
    return Direction(*spread)
