"""Random changes of JSON values, seeded: what a damaged, hand-edited or hostile file may hold."""

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
