"""Reads sentences with entity tags from column files (CoNLL-2003, UNER's IOB2), for the task ner and the linear probes.

    EU NNP B-NP B-ORG          word in the first column, tag in the last; -DOCSTART- rows are skipped
    7  tampa  B-LOC  -  x      every sentence numbers its words from 1: word in the second column, tag in the third, the
                               rest is ignored

Tags of any scheme (IOB1, IOB2, IOBES, BILOU) are converted to IOB2.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elmo.errors import DataError
from elmo.text.columns import Row, check_widths, read_blocks, read_word
from elmo.text.spans import TAG, spans_of_tags, tags_of_spans


def read_entities(path: str | Path) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The words and the IOB2 tags of each sentence; a file without a sentence is an error."""
    blocks = ([row for row in block.rows if row.columns[0] != "-DOCSTART-"] for block in read_blocks(path))
    sentences = [rows for rows in blocks if rows]
    if not sentences:
        raise DataError(f"{path}: the file has no sentence; expected rows of a word and its tag.")
    is_numbered = all(_is_numbered(rows) for rows in sentences)  # a single sentence may be the word "1"
    for rows in sentences:
        word_column, tag_column = (1, 2) if is_numbered else (0, -1)
        _check_columns(path, rows, is_numbered)
        tags = [_read_tag(path, row, tag_column) for row in rows]
        words = tuple(read_word(path, row, word_column) for row in rows)
        yield words, tags_of_spans(spans_of_tags(tags), len(tags))


def _is_numbered(rows: list[Row]) -> bool:
    """Whether the first column may number the words, and the third but not the last of more columns hold the tags."""
    first = rows[0].columns
    has_numbers = all(row.columns[0] == str(number) for number, row in enumerate(rows, 1))
    has_tags_at_end = len(first) > 3 and all(TAG.fullmatch(row.columns[-1]) for row in rows)
    return has_numbers and len(first) >= 3 and TAG.fullmatch(first[2]) is not None and not has_tags_at_end


def _check_columns(path: str | Path, rows: list[Row], is_numbered: bool) -> None:
    """Raises a DataError for a row without the columns that its layout needs."""
    if is_numbered:
        short = next((row for row in rows if len(row.columns) < 3), None)
        if short is not None:
            raise DataError(f"{path}:{short.number}: the row is too short; expected a number, a word and its tag.")
        return
    check_widths(path, rows)
    if len(rows[0].columns) < 2:
        raise DataError(
            f"{path}:{rows[0].number}: the row has only {rows[0].columns[0]!r}; expected a word and its tag.",
            "Columns are separated by spaces or tabs.",
        )


def _read_tag(path: str | Path, row: Row, column: int) -> str:
    tag = row.columns[column].strip()
    if not TAG.fullmatch(tag):
        raise DataError(
            f"{path}:{row.number}: {tag!r} is not a tag; expected O, or B-, I-, E-, S-, L- or U- and a kind.",
            "The word is in the first column and the tag in the last; or in the second and third, if the first column "
            "numbers the words of every sentence from 1.",
        )
    return tag
