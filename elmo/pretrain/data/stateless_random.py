"""Stateless random numbers: a hash of (seed, position), so any position can be revisited.

They choose the held-out sentences, order shards and sentences, and choose where LSTM state is reset. The hash is the
finaliser of splitmix64 in plain 64-bit integer arithmetic, so the numbers are the same on every machine and with every
version of numpy.
"""

from __future__ import annotations

import numpy as np

_MASK = (1 << 64) - 1


def derive_key(*numbers: int) -> int:
    """A 64-bit key derived from several integers; a different order or a different number gives an unrelated key."""
    key = 0
    for number in numbers:
        key = _mix((key + 0x9E3779B97F4A7C15 + (number & _MASK)) & _MASK)
    return key


def random_uint64(positions: np.ndarray, key: int) -> np.ndarray:
    """One pseudo-random uint64 per position; it depends on the position and the key alone.

    Different positions have different numbers under one key.
    """
    mixed = positions.astype(np.uint64) ^ np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def permutation(count: int, key: int) -> np.ndarray:
    """The integers 0..count-1 in a pseudo-random order that depends on the key alone, (count,) int64."""
    return np.argsort(random_uint64(np.arange(count, dtype=np.uint64), key), kind="stable")


def probability_threshold(probability: float) -> int:
    """The uint64 threshold such that a number of `random_uint64` is below it with this probability."""
    return min(int(probability * 2.0**64), _MASK)


def _mix(value: int) -> int:
    """The hash of `random_uint64` for one Python integer."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
