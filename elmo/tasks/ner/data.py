"""Reader and writer of the ner task: column files as in CoNLL-2003, and UNER's IOB2 files. No torch.

    EU NNP B-NP B-ORG          word in the first column, tag in the last; -DOCSTART- rows are skipped
    7  tampa  B-LOC  -  x      number in the first column: word in the second, tag in the third, the rest is ignored

Tags of any scheme (IOB1, IOB2, IOBES, BILOU) are converted to IOB2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.columns import Row, check_widths, read_blocks
from elmo.text.spans import TAG, spans_of_tags, tags_of_spans


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence and the IOB2 tag of each token; tags are None for unlabelled text."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None = None

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.tokens,)


def read_examples(path: Path) -> list[Example]:
    """Reads the sentences of a column file."""
    examples = []
    for block in read_blocks(path):
        rows = [row for row in block.rows if row.columns[0] != "-DOCSTART-"]
        if not rows:
            continue
        word_column, tag_column = _find_columns(path, rows)
        tags = [_read_tag(path, row, tag_column) for row in rows]
        examples.append(
            Example(
                tokens=tuple(_read_word(path, row, word_column) for row in rows),
                tags=tags_of_spans(spans_of_tags(tags), len(tags)),
            )
        )
    if not examples:
        raise DataError(f"{path}: the file has no sentence; expected rows of a word and its tag.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Writes two columns, word and IOB2 tag, with a blank line after each sentence; `read_examples` inverts it."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            for token, tag in zip(example.tokens, example.tags or ("O",) * len(example.tokens), strict=True):
                file.write(f"{token}\t{tag}\n")
            file.write("\n")


def _find_columns(path: Path, rows: list[Row]) -> tuple[int, int]:
    """The columns of the word and of the tag."""
    is_numbered = all(row.columns[0] == str(number) for number, row in enumerate(rows, 1))
    if is_numbered and len(rows[0].columns) >= 3 and TAG.fullmatch(rows[0].columns[2]):
        short = next((row for row in rows if len(row.columns) < 3), None)
        if short is not None:
            raise DataError(f"{path}:{short.number}: the row is too short; expected a number, a word and its tag.")
        return 1, 2
    check_widths(path, rows)
    if len(rows[0].columns) < 2:
        raise DataError(
            f"{path}:{rows[0].number}: the row has only {rows[0].columns[0]!r}; expected a word and its tag.",
            "Columns are separated by spaces or tabs.",
        )
    return 0, -1


def _read_word(path: Path, row: Row, column: int) -> str:
    if not row.columns[column].strip():
        raise DataError(f"{path}:{row.number}: the word is empty.")
    return row.columns[column]


def _read_tag(path: Path, row: Row, column: int) -> str:
    tag = row.columns[column].strip()
    if not TAG.fullmatch(tag):
        raise DataError(
            f"{path}:{row.number}: {tag!r} is not a tag; expected O, or B-, I-, E-, S-, L- or U- and a kind.",
            "The word is in the first column and the tag in the last (or in the second and third after a number).",
        )
    return tag
