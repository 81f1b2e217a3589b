"""Chance without state: numbers drawn by hashing where one stands, so that any place in the data can be returned to.

Used to choose held-out sentences and to order shards and sentences. Plain 64-bit integer arithmetic (the finaliser of
splitmix64), therefore the same on every machine and with every version of numpy.
"""

from __future__ import annotations

import numpy as np

_MASK = (1 << 64) - 1


def key_of(*numbers: int) -> int:
    """One 64-bit key from several whole numbers; another order or another number gives an unrelated key."""
    key = 0
    for number in numbers:
        key = _mix_one((key + 0x9E3779B97F4A7C15 + (number & _MASK)) & _MASK)
    return key


def lots(values: np.ndarray, key: int) -> np.ndarray:
    """A 64-bit number for each value, uint64: looks random, differs for different values, the same for the same key."""
    mixed = values.astype(np.uint64) ^ np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def shuffled(count: int, key: int) -> np.ndarray:
    """The numbers below count in an order that depends on the key alone, int64."""
    return np.argsort(lots(np.arange(count, dtype=np.uint64), key), kind="stable")


def share_limit(share: float) -> int:
    """The bound that this share of all lots lies below."""
    return min(int(share * 2.0**64), _MASK)


def _mix_one(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
