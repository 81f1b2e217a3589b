"""Packing of sentences into rows: every token has one place of its own, and rows are filled evenly."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np

from elmo.kernels.packing import BUCKETS, choose_rows, pack


@hypothesis.given(st.lists(st.integers(0, 60), max_size=300), st.sampled_from([1, 64, 1000]))
def test_every_token_has_one_place(lengths: list[int], break_even: int) -> None:
    packing = pack(np.array(lengths, dtype=np.int64), break_even)
    counts = np.zeros((packing.num_steps, packing.num_rows), dtype=np.int64)
    for length, slot, start in zip(lengths, packing.slots, packing.starts, strict=True):
        if length:
            counts[start : start + length, slot] += 1
            assert start + length <= packing.num_steps
        else:
            assert slot == start == -1
    assert counts.max(initial=0) <= 1
    assert counts.sum() == sum(lengths)
    assert packing.num_rows in BUCKETS


def test_rows_are_filled_evenly() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 5000)
    packing = pack(lengths, 100)
    assert lengths.sum() / (packing.num_rows * packing.num_steps) > 0.85  # two or three sentences per row


def test_the_number_of_rows_is_the_fastest_one() -> None:
    assert choose_rows(np.full(1, 20), 100) == BUCKETS[0]
    assert choose_rows(np.full(100_000, 20), 100) == BUCKETS[-1]
    # the longest sentence needs 500 steps, which is also enough for all sentences in 16 rows
    assert choose_rows(np.array([500, *[10] * 700]), 10) == 16
