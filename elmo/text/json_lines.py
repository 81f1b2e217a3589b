"""Reads JSON lines strictly: one object per line, without duplicate keys, NaN and lone surrogates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmo.files import parse_json
from elmo.text.lines import read_lines
from elmo.text.surrogates import SurrogateReplacer


def read_json_objects(path: str | Path, *, hint: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields PATH:LINE, for error messages, and the object of every line that is not blank.

    A line that is not a JSON object, or has a key twice, is a DataError with this hint.
    """
    for number, line in enumerate(read_json_lines(path), 1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, parse_json(line.encode(), where, hint=hint)


def read_json_lines(path: str | Path) -> Iterator[str]:
    """The lines of a JSON file as `read_lines` yields them, without escapes of lone surrogates.

    Words with lone surrogates could not be saved. One warning at the end names the file and the first line.
    """
    surrogates = SurrogateReplacer()
    for number, line in enumerate(read_lines(path), 1):
        yield surrogates.replace_escapes(line, f"{path}:{number}")
    surrogates.warn()
