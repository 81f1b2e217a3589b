"""JSON from strangers: what Python's parser lets through and a server must not, is an ApiError with status 400."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from elmo.serve.api_error import ApiError

MAX_DEPTH = 16  # nested lists and objects; requests need three


def parse_json(body: bytes) -> Any:
    """The value of a JSON text. NaN, infinite numbers, repeated keys, deep nesting and bad UTF-8 are refused."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refuse(f"The body is not UTF-8 (byte {error.start}).") from None
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite_float, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise _refuse(f"The JSON is nested more than {MAX_DEPTH} levels deep.") from None
    except json.JSONDecodeError as error:
        raise _refuse(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except ValueError:  # Python refuses to parse whole numbers of thousands of digits
        raise _refuse("The JSON holds a number with too many digits.") from None
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            if isinstance(parent, (list, dict))
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (list, dict))
        ]
        if not level:
            return
    raise _refuse(f"The JSON is nested more than {MAX_DEPTH} levels deep.")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _refuse("The JSON holds a number that is too large.")
    return number


def _no_constant(name: str) -> NoReturn:
    raise _refuse(f"The JSON holds {name}, which JSON does not have.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _refuse("The JSON holds an object with the same key twice.")
    return values


def _refuse(message: str) -> ApiError:
    return ApiError(400, "bad_json", message)
