"""Files of columns: blocks of rows between blank lines, as CoNLL's shared tasks made them. Read by ner, srl and coref.

A row keeps its line number, so that what a task finds wrong with it can name file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elmo.errors import DataError
from elmo.text.lines import read_lines

# "# sent_id = 3", "#begin document (x); part 000", "# newdoc": a token "#" has columns of another kind behind it
_COMMENT = re.compile(r"#\s*(?:[\w.:-]+(?:\s+id)?\s*=(?:\s|$)|newdoc\b|newpar\b|(?:begin|end)\s+document\b)")


class Row(NamedTuple):
    """One line of a column file."""

    number: int
    columns: tuple[str, ...]


class Block(NamedTuple):
    """Rows without a blank line between them, and the comments above and among them, as (line number, text)."""

    rows: list[Row]
    comments: list[tuple[int, str]]


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of a file in order; a block of comments alone is one too."""
    rows: list[Row] = []
    comments: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path), 1):
        if _COMMENT.match(line):
            comments.append((number, line))
        elif line.strip():
            rows.append(Row(number, tuple(line.split("\t") if "\t" in line else line.split())))
        elif rows or comments:
            yield Block(rows, comments)
            rows, comments = [], []
    if rows or comments:
        yield Block(rows, comments)


def check_widths(path: Path, rows: list[Row]) -> None:
    """A DataError at the first row that is not as wide as those above it."""
    for row in rows:
        if len(row.columns) != len(rows[0].columns):
            raise DataError(
                f"{path}:{row.number}: the row has {len(row.columns)} columns; the rows above it have "
                f"{len(rows[0].columns)}.",
                "A column is missing or too many; sentences are separated by a blank line.",
            )


def spans_of_brackets(path: Path, rows: list[Row], column: int) -> list[tuple[str, int, int]]:
    """(label, first, last) of every "(LABEL* ... *)" in a column of start-end brackets, in order of their start.

    Labels do not nest here: a second opening before the first is closed is an error.
    """
    spans: list[tuple[str, int, int]] = []
    opened: tuple[str, int] | None = None
    for place, row in enumerate(rows):
        match = _BRACKETS.fullmatch(row.columns[column])
        if match is None:
            raise DataError(
                f"{path}:{row.number}: {row.columns[column]!r} is no argument column; expected '*', '(A0*', '*)' or "
                "'(A0*)'."
            )
        label, closed = match["label"], match["closed"]
        if label is not None and opened is not None:
            raise DataError(f"{path}:{row.number}: ({label}* opens inside ({opened[0]}*; arguments may not nest.")
        if closed and label is None and opened is None:
            raise DataError(f"{path}:{row.number}: '*)' closes an argument, and none is open.")
        if label is not None:
            opened = (label, place)
        if closed and opened is not None:
            spans.append((opened[0], opened[1], place))
            opened = None
    if opened is not None:
        raise DataError(
            f"{path}:{rows[opened[1]].number}: ({opened[0]}* is never closed; expected a '*)' in the same sentence."
        )
    return spans


_BRACKETS = re.compile(r"(?:\((?P<label>[^*()\s]+))?\*(?P<closed>[^()*\s]*\))?")
