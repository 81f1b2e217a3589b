"""Declared shapes of the JSON files that the package reads, so that a wrong file gets an error that names the place.

A shape is built of plain values:

    str, bool                   a string, true or false
    NUMBER, COUNT, Number(...)  a number in a range; never NaN, infinite, or too large to compute with
    ANY                         any value
    {"a": ..., "b?": ...}       an object with the key a; the key b may be missing; other keys are allowed
    {"*": ..., "a": ...}        an object; the values of all other keys have the shape of *
    Keys("in|out", shape)       an object whose keys match the pattern
    List(shape, least=1)        a list of at least one item
    OneOf("train", "test")      one of these strings
    Maybe(shape)                null, or the shape

`find_problem` gives the first difference between a value and its shape, `check_shape` raises it as an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elmo.errors import DataError, ElmoError, printable

LARGEST = 1e15  # larger numbers in a record are errors; their sums, squares and products would overflow


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`, both included; `whole` excludes fractions."""

    low: float = -LARGEST
    high: float = LARGEST
    whole: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if (self.low, self.high) == (-LARGEST, LARGEST):
            return kind
        return (
            f"{kind} of at least {self.low:,}" if self.high == LARGEST else f"{kind} from {self.low:,} to {self.high:,}"
        )

    def accepts(self, value: Any) -> bool:
        return type(value) in ((int,) if self.whole else (int, float)) and self.low <= value <= self.high


@dataclass(frozen=True)
class List:
    """A list of items of one shape; `length`, if given, is the exact number of items."""

    shape: Any
    least: int = 0
    length: int | None = None

    def __str__(self) -> str:
        if self.length is not None:
            return f"a list of {self.length} items"
        return "a list" if self.least == 0 else f"a list of at least {self.least} items"


@dataclass(frozen=True)
class Keys:
    """An object whose keys match a pattern and whose values have one shape."""

    pattern: str
    shape: Any
    least: int = 0

    def __str__(self) -> str:
        return "an object" if self.least == 0 else "an object that is not empty"


@dataclass(frozen=True)
class Maybe:
    """Null, or a shape."""

    shape: Any

    def __str__(self) -> str:
        return f"{_expected(self.shape)}, or null"


class OneOf:
    """One of some strings."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __str__(self) -> str:
        return f"one of {', '.join(self.choices)}"


ANY = object()
NUMBER, COUNT, SHARE = Number(), Number(low=0, whole=True), Number(low=0, high=1)


@dataclass(frozen=True)
class Problem:
    """A difference between a value and its shape: where it is, and what is there instead of what."""

    path: str  # such as "curve[3].dev.f1"; empty for the value itself
    found: str | None  # None: the key is missing
    expected: str

    def __str__(self) -> str:
        found = "missing" if self.found is None else self.found
        return f"{self.path or 'the value'} is {found}; expected {self.expected}"


def check_shape(value: Any, shape: Any, source: object, *, error: type[ElmoError] = DataError, hint: str = "") -> None:
    """Raises `error` with the first difference between a value and its shape; `source` names the file."""
    if problem := find_problem(value, shape):
        raise error(f"{source}: {problem}.", hint)


def find_problem(value: Any, shape: Any) -> Problem | None:
    """The first difference between a value and its shape; None if there is none."""
    return next(_problems(value, shape, ""), None)


def _problems(value: Any, shape: Any, path: str) -> Iterator[Problem]:
    if isinstance(shape, Maybe):
        if value is not None:
            yield from _problems(value, shape.shape, path)
    elif isinstance(shape, dict):
        yield from _object_problems(value, shape, path)
    elif not _is_of_type(value, shape):
        yield Problem(path, _describe(value), _expected(shape))
    elif isinstance(shape, List):
        for index, item in enumerate(value):
            yield from _problems(item, shape.shape, f"{path}[{index}]")
    elif isinstance(shape, Keys):
        for key, item in value.items():
            if not re.fullmatch(shape.pattern, key, re.DOTALL):
                yield Problem(path, f"an object with the key {key[:80]!r}", f"keys such as {shape.pattern}")
            yield from _problems(item, shape.shape, _join(path, key))


def _object_problems(value: Any, shape: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem(path, _describe(value), "an object")
        return
    for name, inner in shape.items():
        key = name.removesuffix("?")
        if name == "*":
            for other in value.keys() - {known.removesuffix("?") for known in shape}:
                yield from _problems(value[other], inner, _join(path, other))
        elif key not in value:
            if name == key:
                yield Problem(_join(path, key), None, _expected(inner))
        else:
            yield from _problems(value[key], inner, _join(path, key))


def _is_of_type(value: Any, shape: Any) -> bool:
    """Whether a value is of the type of a shape; the items of lists and objects are not looked at."""
    if shape is ANY:
        return True
    if isinstance(shape, Number):
        return shape.accepts(value)
    if isinstance(shape, OneOf):
        return isinstance(value, str) and value in shape.choices
    if isinstance(shape, List):
        exact = shape.length is None or isinstance(value, list) and len(value) == shape.length
        return isinstance(value, list) and len(value) >= shape.least and exact
    if isinstance(shape, Keys):
        return isinstance(value, Mapping) and len(value) >= shape.least
    return type(value) is shape


def _expected(shape: Any) -> str:
    names = {str: "a string", bool: "true or false"}
    if isinstance(shape, dict):
        return "an object"
    return names[shape] if isinstance(shape, type) else "a value" if shape is ANY else str(shape)


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)} items"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:80]}..."


def _join(path: str, key: str) -> str:
    key = key if len(key) <= 80 else f"{key[:80]}..."
    return f"{path}.{printable(key)}" if path else printable(key)
