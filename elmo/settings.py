"""Settings: tables from TOML files, flags, --set and saved JSON, merged and parsed into typed config dataclasses.

A config is a frozen dataclass. Its annotations say what each field takes, `Annotated` adds the allowed range:

    lr: Annotated[float, above(0)] = 4e-3
    decay: Annotated[str, one_of("none", "linear", "cosine")] = "cosine"
    patience: Annotated[int, at_least(1)] | None = None  # None is written "off", because TOML has no null

`parse_settings` makes a config from a table and names the full key in every error; `check_fields` does the same for a
config that is made in Python.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from elmo.errors import ConfigError, DataError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OFF = "off"  # None in TOML files and on the command line
_BOOLS = {"true": True, "True": True, "false": False, "False": False}
_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}

T = TypeVar("T")


@dataclass(frozen=True)
class Limit:
    """The allowed values of a field, and the words an error message uses for them."""

    text: str
    accepts: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


def above(low: float, *, up_to: float = math.inf) -> Limit:
    """Numbers greater than `low`, at most `up_to`."""
    text = f"above {low:,}" + ("" if up_to == math.inf else f", up to {up_to:,}")
    return Limit(text, lambda value: low < value <= up_to)


def at_least(low: float, *, up_to: float = math.inf, below: float = math.inf) -> Limit:
    """Numbers from `low`, at most `up_to` and less than `below`."""
    high = f"to {up_to:,}" if up_to < math.inf else f"to below {below:,}" if below < math.inf else ""
    text = f"from {low:,} {high}" if high else f"of at least {low:,}"
    return Limit(text, lambda value: low <= value <= up_to and value < below)


def one_of(*choices: str) -> Limit:
    """One of these strings."""
    return Limit(f"one of {', '.join(choices)}", choices.__contains__, choices)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, table by table; lists and single values replace."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def changed_settings(
    before: Mapping[str, Any], after: Mapping[str, Any], *, ignore: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Full key -> (value before, value after) of every setting in which two nested tables differ, sorted.

    A missing key counts as None, a list equals a tuple, and keys in `ignore` ("train.device") are left out.
    """
    changed: dict[str, tuple[Any, Any]] = {}
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = changed_settings(old, new)
            changed |= {f"{key}.{name}": values for name, values in inner.items()}
        elif _as_lists(old) != _as_lists(new):
            changed[key] = (old, new)
    return {key: values for key, values in changed.items() if key not in ignore}


def describe_changes(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """The result of `changed_settings` in one line, long values cut; empty where nothing differs."""
    return ", ".join(f"{key} {str(old)[:80]} -> {str(new)[:80]}" for key, (old, new) in changed.items())


def check_count(name: str, value: object) -> int:
    """An argument as an int; a ConfigError unless it is a whole number, of Python or numpy, of at least 1."""
    number = whole_number(value)
    if number is None or number < 1:
        raise ConfigError(f"{name} is {value!r}; expected a whole number of at least 1.")
    return number


def whole_number(value: object) -> int | None:
    """A whole number of Python or numpy as an int; None for anything else, also for True and False."""
    if isinstance(value, bool):
        return None
    return int(value) if isinstance(value, Integral) else None


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def parse_settings(
    config_type: type[T], values: Any, *, section: str = "", sections: Mapping[str, type] | None = None
) -> T:
    """A config from a nested table; each key must be a field, each value of the field's type and in its range.

    `section` is the full key of the table itself. `sections` gives the types of tables that the config declares as
    `Any`. What TOML cannot say is accepted in its place: "off" for None, a list for a tuple, and for --set the words
    True and False.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{section or 'the configuration'} is {values!r:.80}; expected a table of settings.")
    prefix = f"{section}." if section else ""
    hints = {**_type_hints(config_type), **(sections or {})}
    for key in values:
        if key not in hints:
            raise ConfigError(f"Unknown setting {prefix + str(key)!r}.", _nearest(str(key), hints, prefix))
    arguments = {key: _parse_value(f"{prefix}{key}", value, hints[key]) for key, value in values.items()}
    for name in _required_fields(config_type):
        if name not in values:
            raise ConfigError(f"{prefix}{name} is missing; expected {_expected(hints[name])}.")
    try:
        return config_type(**arguments)
    except ConfigError as error:  # a check of several fields, which does not know its section
        raise ConfigError(f"{section}: {error.message}" if section else error.message, error.hint) from error


def check_fields(config: object) -> None:
    """For `__post_init__`: checks every field as `parse_settings` does, so that configs made in Python are checked."""
    for name, hint in _type_hints(type(config)).items():
        object.__setattr__(config, name, _parse_value(name, getattr(config, name), hint))


def _parse_value(key: str, value: Any, hint: Any) -> Any:
    plain, limit, optional = _split_hint(hint)
    if plain is Any:
        return value
    if optional and (value is None or value == OFF):
        return None
    if is_dataclass(plain):
        return value if isinstance(value, cast(type, plain)) else parse_settings(cast(type, plain), value, section=key)
    if get_origin(plain) is dict:
        return _parse_table(key, value, plain)
    if get_origin(plain) is tuple:
        parsed = _parse_tuple(key, value, plain)
    else:
        parsed = _parse_plain(value, plain)
    if parsed is None or limit is not None and not limit.accepts(parsed):
        near = difflib.get_close_matches(str(value), limit.choices if limit is not None else (), n=1)
        hint_text = f"Did you mean {near[0]!r}?" if near else ""  # the message has all choices
        expected = _expected(hint)
        if isinstance(value, float) and not math.isfinite(value):
            expected = expected.replace("a number", "a finite number", 1)
        raise ConfigError(f"{key} is {value!r:.80}; expected {expected}.", hint_text)
    return parsed


def _parse_plain(value: Any, plain: type) -> Any:
    """The value as a bool, int, float or str; None where it is of another type."""
    if plain is bool and isinstance(value, str):
        return _BOOLS.get(value)
    if plain is float and type(value) in (int, float):
        return float(value) if abs(value) <= sys.float_info.max else None  # neither NaN nor infinite
    return value if type(value) is plain else None


def _parse_tuple(key: str, value: Any, hint: Any) -> tuple[Any, ...] | None:
    """The items of a list, each parsed; a single string stands for a list of one. None where it is no list."""
    items = get_args(hint)
    if isinstance(value, str) and items == (str, ...):
        value = [value]
    if not isinstance(value, (list, tuple)):
        return None
    if items[-1] is ...:
        items = (items[0],) * len(value)
    if len(items) != len(value):
        return None
    return tuple(_parse_value(f"{key}[{i}]", *pair) for i, pair in enumerate(zip(value, items, strict=True)))


def _parse_table(key: str, value: Any, hint: Any) -> dict[str, Any]:
    """A table with names of the user's choice; the names must not need quotes in TOML."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} is {value!r:.80}; expected {_expected(hint)}.")
    for name in value:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ConfigError(f"{key} has the name {name!r:.80}; expected letters, digits, - and _.")
    return {name: _parse_value(f"{key}.{name}", item, get_args(hint)[1]) for name, item in value.items()}


def _split_hint(hint: Any) -> tuple[Any, Limit | None, bool]:
    """An annotation as its plain type, its limit, and whether None is allowed."""
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (option for option in get_args(hint) if option is not type(None))
        return (*_split_hint(inner)[:2], True)
    if get_origin(hint) is Annotated:
        plain, limit = get_args(hint)
        return plain, limit, False
    return hint, None, False


def _expected(hint: Any) -> str:
    """What a field takes, in words."""
    plain, limit, optional = _split_hint(hint)
    if is_dataclass(plain) or get_origin(plain) is dict:
        text = "a table of settings" if is_dataclass(plain) else "a table"
    elif get_origin(plain) is tuple:
        items = get_args(plain)
        text = "a list" if items[-1] is ... else f"a list of {len(items)} values"
    else:
        text = _TYPE_NAMES[plain]
    if limit is not None:
        text = limit.text if limit.choices else f"{text} {limit.text}"
    return f'{text}, or "{OFF}"' if optional else text


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {prefix + near[0]!r}?" if near else f"Known: {', '.join(known)}."


def _type_hints(config_type: type) -> dict[str, Any]:
    return get_type_hints(config_type, include_extras=True)


def _required_fields(config_type: Any) -> list[str]:
    return [f.name for f in fields(config_type) if f.default is MISSING and f.default_factory is MISSING]


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}).") from error


def format_toml(values: Mapping[str, Any]) -> str:
    """Nested settings as TOML, one table per section; None is written "off"."""
    return "\n".join(_toml_lines("", values)) + "\n"


def _toml_lines(name: str, values: Mapping[str, Any]) -> list[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [f"\n[{name}]"] if name else []
    lines += [f"{key} = {_toml_value(value)}" for key, value in values.items() if key not in tables]
    for key, table in tables.items():
        lines += _toml_lines(f"{name}.{key}" if name else key, table)
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    # TOML writes strings, numbers and booleans as JSON does
    return json.dumps(OFF if value is None else value, ensure_ascii=False)


def parse_assignment(text: str) -> dict[str, Any]:
    """The argument of --set, section.key=value, as a nested table; the value is TOML, or else a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected section.key=value.", "For example --set train.steps=40")
    parsed = _parse_assigned(value)
    for name in reversed(key.strip().split(".")):
        parsed = {name: parsed}
    return dict(parsed)


def format_assignment(key: str, value: Any) -> str:
    """The argument of --set that gives this setting its value; the inverse of `parse_assignment`."""
    value = OFF if value is None else value
    is_plain = isinstance(value, str) and _parse_assigned(value) == value
    return f"{key}={value if is_plain else _toml_value(value)}"


def _parse_assigned(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
