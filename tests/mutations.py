"""Random changes of JSON values and of bytes, seeded: what a damaged, hand-edited or hostile file may hold."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 3, 0.5, 1e308, -1e308, 10**400, float("nan"), float("inf"), "", "x", "a" * 5000, "\ud800",
    "unclosed 'quote", [], [[]], [None], [1, 2], ["x"], [[[[[1]]]]], {}, {"x": 1}, {"": None},
)  # fmt: skip


def mutants(values: Any, count: int, seed: int = 0) -> Iterator[Any]:
    """Copies of a JSON value, each changed in one or two places."""
    generator = random.Random(seed)
    for _ in range(count):
        mutant = copy.deepcopy(values)
        for _ in range(generator.choice((1, 1, 2))):
            mutant = _mutate(mutant, generator)
        yield mutant


def mutate_bytes(data: bytes, generator: random.Random) -> bytes:
    """A copy with one to four changes, half of them near the start or the end, where formats keep their tables."""
    mutant = bytearray(data)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        size = max(1, len(mutant))
        area = generator.choice((size, size, min(size, 512), min(size, 6144)))
        start = generator.randrange(area)
        start = size - 1 - start if generator.random() < 0.2 else start
        piece = slice(start, start + generator.choice((1, 2, 4, 8, 100)))
        change = generator.randrange(7)
        if change <= 1 and mutant:
            mutant[start] ^= 1 << generator.randrange(8)
        elif change == 2:
            mutant[piece] = generator.randbytes(len(mutant[piece]))
        elif change == 3:
            del mutant[piece]
        elif change == 4:
            mutant[piece] = mutant[piece] * 2
        elif change == 5:
            mutant[piece] = bytes([generator.choice((0, 255))]) * len(mutant[piece])
        elif generator.random() < 0.3:
            del mutant[start:]
    return bytes(mutant)


def _mutate(values: Any, generator: random.Random) -> Any:
    """Replaces, removes, renames, repeats or nests a value at a random place; `values` itself may be changed."""
    places = list(_places(values))
    if not places:
        return generator.choice(VALUES)
    holder, key = generator.choice(places)
    change = generator.randrange(8)
    if change == 0:
        del holder[key]
    elif change == 1:
        holder[key] = [holder[key]]
    elif change == 2:
        holder[key] = {"x": holder[key]}
    elif change == 3 and isinstance(holder, dict):
        holder[generator.choice(("x", "", "²", "9" * 50, "\ud800"))] = holder.pop(key)
    elif change == 3:
        holder.append(holder[key])
    else:
        holder[key] = copy.deepcopy(generator.choice(VALUES))
    return values


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in nested values: its dict or list, and its key or index."""
    keys = list(values) if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
    for key in keys:
        yield values, key
        yield from _places(values[key])
