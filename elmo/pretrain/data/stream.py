"""Batches for the language model from prepared text: continuous rows for training, whole sentences for evaluation.

`ContinuousStream` fills rows as the reference implementation does: each direction has its own order of sentences, each
row takes the next sentence when its current one is finished, and a sentence that does not fit continues in the same row
of the next batch. A sentence of n tokens has n + 1 predictions: forward <S> w1 .. wn </S>, backward </S> wn .. w1 <S>,
each position predicting the next. The position in the text is a few integers: after `state` and `restore` the batches
continue bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.prepared import PreparedData, Split
from elmo.pretrain.data.row_layout import RowFiller, Segments
from elmo.pretrain.data.sentence_order import SHUFFLE_WINDOW, num_groups
from elmo.settings import changed_settings
from elmo.text.batch import plan_batches


@dataclass(frozen=True)
class Direction:
    """One direction of a batch, all (B, T): position t of row r reads inputs[r, t] and predicts targets[r, t]."""

    inputs: np.ndarray  # int32, ids of word types (rows of PreparedData.type_chars)
    targets: np.ndarray  # int32, vocabulary ids
    resets: np.ndarray  # bool, the state of the row is zeroed before this position is read
    mask: np.ndarray | None  # bool, false is padding, whose prediction does not count; None: all predictions count


@dataclass(frozen=True)
class LMBatch:
    """Both directions; in training, row r of forward and row r of backward hold different text."""

    forward: Direction
    backward: Direction
    epoch: float = 0.0  # passes over the text that the stream has delivered, this batch included

    @property
    def num_predictions(self) -> tuple[int, int]:
        """The number of predictions that count, forward and backward."""
        forward, backward = (
            d.inputs.size if d.mask is None else int(d.mask.sum()) for d in (self.forward, self.backward)
        )
        return forward, backward


class ContinuousStream:
    """An iterator of LMBatch: num_rows continuous rows of num_steps positions for each direction.

    shuffle: sentences in a random order without replacement, different for every epoch and direction; a text with more
    than `shuffle_window` sentences is read in groups of about so many, each from shards drawn at random, and with
    shuffle_window 0 one shard after the other. Without shuffle both directions read the same sentences in the order of
    the prepared text. reset: the probability that the state is reset before a sentence (0: always carried, as the
    reference implementation trains; 1: never carried). num_epochs None: endless. Otherwise the last incomplete batch is
    dropped, as in the reference implementation, or with last="pad" padded and masked, so that every prediction counts
    once. With world_size processes each gets num_rows of the world_size * num_rows rows that one process would get;
    rank 0 gets the first ones.
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
        shuffle_window: int = SHUFFLE_WINDOW,
        reset: float = 0.0,
        num_epochs: int | None = None,
        last: str = "drop",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if num_rows < 1 or num_steps < 1 or not 0 <= rank < world_size or (num_epochs is not None and num_epochs < 1):
            raise ConfigError(
                f"A stream of {num_rows} rows x {num_steps} steps, {num_epochs} epochs, rank {rank} of {world_size}.",
                "Expected at least one row, step and epoch, and a rank from 0 to below the number of processes.",
            )
        if not 0 <= reset <= 1 or last not in ("drop", "pad"):
            raise ConfigError(f"reset is {reset} and last is {last!r}; expected 0 to 1, and drop or pad.")
        if data.split(split).num_sentences == 0:
            raise DataError(
                f"{data.folder} has no {split} text.", "Prepare it with a held-out share or held-out files."
            )
        self.data, self.split = data, split
        self.num_rows, self.num_steps, self.world_size, self.rank = num_rows, num_steps, world_size, rank
        self.seed, self.shuffle, self.shuffle_window, self.pad_last = seed, shuffle, shuffle_window, last == "pad"
        self.num_batches = 0  # delivered so far
        self._forward, self._backward = (
            RowFiller(
                data.split(split),
                num_rows * world_size,
                shuffle_key=(seed, direction) if shuffle else None,
                reset=(reset, seed, direction),
                num_epochs=num_epochs,
                shuffle_window=shuffle_window,
            )
            for direction in (0, 1)
        )

    @property
    def positions_per_epoch(self) -> int:
        """Predictions per direction in one pass over the text: tokens + sentences."""
        return self.data.split(self.split).num_positions

    @property
    def epochs(self) -> float:
        """The number of passes over the text that the batches delivered so far are equal to."""
        return self.num_batches * self.num_rows * self.world_size * self.num_steps / self.positions_per_epoch

    def __iter__(self) -> Iterator[LMBatch]:
        return self

    def __next__(self) -> LMBatch:
        both = [filler.fill(self.num_steps) for filler in (self._forward, self._backward)]
        if self.pad_last and not any(len(segments.row) for segments in both):
            raise StopIteration
        if not self.pad_last and not all(segments.full for segments in both):
            raise StopIteration
        self.num_batches += 1
        first_row = self.rank * self.num_rows
        forward, backward = (segments.select_rows(first_row, first_row + self.num_rows) for segments in both)
        return LMBatch(
            forward=_gather(self._forward, forward, self.num_rows, self.num_steps, self.data, backward=False),
            backward=_gather(self._backward, backward, self.num_rows, self.num_steps, self.data, backward=True),
            epoch=self.epochs,
        )

    def state(self) -> dict[str, Any]:
        """The position in the text after the last batch, as integers and small arrays; the same on every rank."""
        return {
            "settings": self._settings(),
            "num_batches": self.num_batches,
            "forward": self._forward.state(),
            "backward": self._backward.state(),
        }

    def restore(self, state: dict[str, Any], *, other_rows: bool = False) -> None:
        """Continues from `state`; if it has other data, another seed or another order, an error lists the differences.

        A different number of rows is an error too, unless `other_rows` is set. Then the order of sentences continues,
        but every row starts with a new sentence and the unfinished sentences of the old rows are skipped.
        """
        settings = self._settings()
        same_rows = state["settings"]["rows"] == settings["rows"]
        ignored = {"rows"} if other_rows else set()
        if changed := changed_settings(state["settings"], settings, ignore=ignored):
            lines = [f"{name}: {before!r} then, {after!r} now" for name, (before, after) in changed.items()]
            raise ConfigError("The saved position in the text is of another run.", "\n  ".join(lines))
        self.num_batches = state["num_batches"]
        self._forward.restore(state["forward"], with_rows=same_rows)
        self._backward.restore(state["backward"], with_rows=same_rows)

    def _settings(self) -> dict[str, Any]:
        rows = self.num_rows * self.world_size
        settings = {"data": self.data.fingerprint, "split": self.split, "rows": rows, "shuffle": self.shuffle}
        window = shuffle_identity(self.data.split(self.split), self.shuffle, self.shuffle_window)
        return settings | {"seed": self.seed} | window | sampling_identity(self.data.split(self.split))


def shuffle_identity(text: Split, shuffle: bool, window: int) -> dict[str, int]:
    """What a resumed run must know of the shuffle window: nothing if every shard is a group, as in older runs."""
    return {"shuffle_window": window} if shuffle and num_groups(text, window) < len(text.shards) else {}


def sampling_identity(text: Split) -> dict[str, list[float]]:
    """What a resumed run must know of the sampling of languages: nothing if every sentence is read once per epoch."""
    return {"repetitions": list(text.repetitions)} if text.repetitions else {}


def sentence_batches(
    data: PreparedData,
    split: str = "heldout",
    *,
    max_tokens: int = 4096,
    max_words: int | None = None,
    sentences: range | None = None,
) -> Iterator[LMBatch]:
    """Padded batches with every sentence once, each starting from zero state; B rows x T positions <= max_tokens.

    Both directions hold the same sentences in the same rows. A longer sentence is a batch of its own. `sentences`
    selects sentences by number (see PreparedData.heldout_sources). max_words selects every n-th sentence of the text,
    so that all of them together have about that many words and the sources keep their shares. Sentences of similar
    length share a batch, within windows of 65,536 sentences.
    """
    text = data.split(split)
    chosen = range(text.num_sentences) if sentences is None else sentences
    if max_words is not None:
        interval = sample_interval(text, max_words)
        chosen = range(-(-chosen.start // interval) * interval, chosen.stop, interval)
    first = 0  # number of the shard's first sentence
    for number, (count, _) in enumerate(text.shards):
        tokens, offsets = text.shard(number)
        inside = np.array([i - first for i in chosen if first <= i < first + count], dtype=np.int64)
        first += count
        for start in range(0, len(inside), 1 << 16):
            window = inside[start : start + (1 << 16)]
            lengths = offsets[window + 1] - offsets[window]
            # plan_batches adds two boundaries per sentence, but a direction reads only one
            for group in plan_batches((lengths - 1).clip(1).tolist(), max_tokens=max_tokens, max_rows=max_tokens):
                yield _padded_batch(tokens, offsets[window[group]], lengths[group], data)


def sample_interval(text: Split, max_words: int | None) -> int:
    """The number n so that every n-th sentence has about `max_words` words together; 1 without a limit."""
    return 1 if max_words is None else max(1, math.ceil(text.num_tokens / max_words))


def _padded_batch(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray, data: PreparedData) -> LMBatch:
    """One whole sentence per row."""
    segments = Segments(
        row=np.arange(len(starts)),
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


class _ShardTokens(Protocol):
    """The tokens of a shard by its number."""

    def __getitem__(self, shard: int, /) -> np.ndarray: ...


def _gather(
    shards: _ShardTokens, segments: Segments, num_rows: int, num_steps: int, data: PreparedData, *, backward: bool
) -> Direction:
    """The inputs, targets, resets and mask that the segments describe, padded to num_rows x num_steps."""
    count, num_cells = segments.count, num_rows * num_steps
    before = np.cumsum(count) - count  # (S,), positions of earlier segments
    total = int(count.sum())
    # index in the shard of the target at a segment's first position; it moves by one per position
    first_index = segments.start + (segments.length - 1 - segments.first if backward else segments.first)  # (S,)
    targets, inputs = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int32)
    for members in _by_shard(segments.shard):
        tokens, lengths = shards[int(segments.shard[members[0]])], count[members]
        inside = np.cumsum(lengths) - lengths
        steps = np.arange(int(lengths.sum())) - np.repeat(inside, lengths)  # positions from the segment's first on
        cells = np.repeat(before[members], lengths) + steps
        target_index = np.repeat(first_index[members], lengths) + (-steps if backward else steps)
        targets[cells] = tokens.take(target_index, mode="clip")
        inputs[cells] = tokens.take(target_index + (1 if backward else -1), mode="clip")
    begin, end = (data.eos, data.bos) if backward else (data.bos, data.eos)
    targets[targets >= data.vocab_size] = data.unk
    starts_sentence = segments.first == 0
    ends_sentence = segments.first + count == segments.length + 1
    inputs[before[starts_sentence]] = begin
    targets[(before + count - 1)[ends_sentence]] = end
    resets = np.zeros(total, dtype=bool)
    resets[before[starts_sentence & segments.reset]] = True
    if total == num_cells:  # every row is full
        shape = num_rows, num_steps
        return Direction(inputs.reshape(shape), targets.reshape(shape), resets.reshape(shape), None)
    before_in_row = before - before[np.searchsorted(segments.row, segments.row)]  # (S,), positions
    cells = np.repeat(segments.row * num_steps + before_in_row - before, count) + np.arange(total)  # (positions,)
    padded = []
    for values, padding in ((inputs, begin), (targets, end), (resets, False), (np.ones(total, dtype=bool), False)):
        array = np.full(num_cells, padding, dtype=values.dtype)
        array[cells] = values
        padded.append(array.reshape(num_rows, num_steps))  # (B, T)
    return Direction(*padded)


def _by_shard(shard: np.ndarray) -> list[np.ndarray]:
    """The indices of the segments of each shard that occurs, in rising order."""
    order = np.argsort(shard, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(shard[order])) + 1) if len(shard) else []
