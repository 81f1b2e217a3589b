"""Rows of .csv and .tsv files with a header, read with the standard library's csv module in constant memory.

A quoted field may contain line ends, so the rows have no known offsets: a file is read from its start. Needs no torch.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice

from elmo.embed.shards.options import ReadOptions
from elmo.errors import DataError
from elmo.text.lines import read_lines

DELIMITERS = {"csv": ",", "tsv": "\t"}  # by the kind of a file


def csv_items(path: str, kind: str, options: ReadOptions, first_row: int = 0) -> Iterator[tuple[int, str]]:
    """The number of its first line and the text of each row after the header; blank lines are not rows."""
    records = _records(path, DELIMITERS[kind], options)
    line, names = next(records, (1, []))
    if not names:
        raise DataError(f"{path} is empty; expected a row with the names of the columns.")
    if names.count(options.column) != 1:
        problem = f"{names.count(options.column)} columns" if options.column in names else "no column"
        found = ", ".join(repr(name[:40]) for name in names[:10])
        raise DataError(
            f"{path}:{line} has {problem} {options.column!r}; it has {found}.",
            "The first row names the columns; name the column of the text with --column.",
        )
    column = names.index(options.column)
    for line, fields in islice(records, first_row, None):
        if len(fields) != len(names):
            raise DataError(
                f"{path}:{line}: the row has {len(fields)} fields; expected {len(names)}, as in the first row.",
                f"A field that contains {DELIMITERS[kind]!r} or a line end is written in double quotes.",
            )
        yield line, fields[column]


def _records(path: str, delimiter: str, options: ReadOptions) -> Iterator[tuple[int, list[str]]]:
    """Each record that is not blank, with the number of its first line."""
    lines = (line + "\n" for line in read_lines(path, encoding=options.encoding, errors=options.errors))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        first_line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{path}:{first_line}: the row cannot be read ({error}).",
                'A field with double quotes is written in double quotes, with each one doubled: "a ""b"" c".',
            ) from error
        if fields is None:
            return
        if fields:
            yield first_line, fields
