"""Reader of CoNLL-like column files: blocks of rows separated by blank lines. For ner, srl, coref and linear probes.

Each row stores its line number, so that an error message can name the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elmo.errors import DataError
from elmo.text.lines import read_lines

# "# sent_id = 3", "# text[en] = A man", "#begin document (x); part 000", "# newdoc". A row whose token is "#" continues
# with other columns.
_COMMENT = re.compile(r"#\s*(?:[\w.:-]+(?:\[[\w-]+\]|\s+id)?\s*=(?:\s|$)|newdoc\b|newpar\b|(?:begin|end)\s+document\b)")


class Row(NamedTuple):
    """One line of a column file, with its line number (from 1)."""

    number: int
    columns: tuple[str, ...]


class Block(NamedTuple):
    """Rows without a blank line between them, and the comments before and among them as (line number, text)."""

    rows: list[Row]
    comments: list[tuple[int, str]]


def read_blocks(path: str | Path, *, tabs_only: bool = False) -> Iterator[Block]:
    """Yields the blocks of a file in order; a block may consist of comments alone.

    By default columns are separated by tabs if the line has one, otherwise by whitespace, and a comment is a line of a
    known form such as `# sent_id = 3`. With `tabs_only`, as in CoNLL-U, only tabs separate columns, and every line is a
    comment that starts with "# ", or that starts with "#" and has no tab.
    """
    rows: list[Row] = []
    comments: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path), 1):
        if _is_comment(line, tabs_only):
            comments.append((number, line))
        elif line.strip():
            rows.append(Row(number, tuple(line.split("\t") if tabs_only or "\t" in line else line.split())))
        elif rows or comments:
            yield Block(rows, comments)
            rows, comments = [], []
    if rows or comments:
        yield Block(rows, comments)


def check_widths(path: str | Path, rows: list[Row]) -> None:
    """Raises a DataError for the first row that has not as many columns as the first row."""
    for row in rows:
        if len(row.columns) != len(rows[0].columns):
            raise DataError(
                f"{path}:{row.number}: the row has {len(row.columns)} columns; the rows above it have "
                f"{len(rows[0].columns)}.",
                "A column is missing or there is one too many; sentences are separated by a blank line.",
            )


def read_word(path: str | Path, row: Row, column: int) -> str:
    """The word in a column of the row; an empty one is a DataError."""
    if not row.columns[column].strip():
        raise DataError(f"{path}:{row.number}: the word is empty.", f"Column {column + 1} has the words.")
    return row.columns[column]


def _is_comment(line: str, tabs_only: bool) -> bool:
    if tabs_only:
        return line.startswith("# ") or (line.startswith("#") and "\t" not in line)
    return _COMMENT.match(line) is not None
