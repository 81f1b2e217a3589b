"""Named entities in columns: CoNLL-2003 and its like, and UNER's IOB2. The first step of the ner task; no torch.

    EU NNP B-NP B-ORG          the word first, its tag last; -DOCSTART- rows are dropped
    7  tampa  B-LOC  -  x      a number first: the word second, its tag third, what follows is dropped

Tags of any scheme (IOB1, IOB2, IOBES, BILOU) become IOB2.
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
    """A sentence, and the IOB2 tag of each token; None: not known."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None = None

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.tokens,)


def read_examples(path: Path) -> list[Example]:
    """The sentences of a file of columns."""
    examples = []
    for block in read_blocks(path):
        rows = [row for row in block.rows if row.columns[0] != "-DOCSTART-"]
        if not rows:
            continue
        word, tag = _layout(path, rows)
        tags = [_checked_tag(path, row, tag) for row in rows]
        examples.append(
            Example(
                tokens=tuple(_word(path, row, word) for row in rows),
                tags=tags_of_spans(spans_of_tags(tags), len(tags)),
            )
        )
    if not examples:
        raise DataError(f"{path}: there is no sentence in this file; expected rows of a word and its tag.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Two columns, word and IOB2 tag, a blank line after each sentence; reading it back gives the same examples."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            for token, tag in zip(example.tokens, example.tags or ("O",) * len(example.tokens), strict=True):
                file.write(f"{token}\t{tag}\n")
            file.write("\n")


def _layout(path: Path, rows: list[Row]) -> tuple[int, int]:
    """Which columns hold the word and the tag."""
    counted = all(row.columns[0] == str(place) for place, row in enumerate(rows, 1))
    if counted and len(rows[0].columns) >= 3 and TAG.fullmatch(rows[0].columns[2]):
        short = next((row for row in rows if len(row.columns) < 3), None)
        if short is not None:
            raise DataError(f"{path}:{short.number}: the row ends too soon; expected a number, a word and its tag.")
        return 1, 2
    check_widths(path, rows)
    if len(rows[0].columns) < 2:
        raise DataError(
            f"{path}:{rows[0].number}: {rows[0].columns[0]!r} is alone on its line; expected a word and its tag.",
            "Columns are separated by spaces or tabs.",
        )
    return 0, -1


def _word(path: Path, row: Row, column: int) -> str:
    if not row.columns[column].strip():
        raise DataError(f"{path}:{row.number}: the word is empty.")
    return row.columns[column]


def _checked_tag(path: Path, row: Row, column: int) -> str:
    tag = row.columns[column].strip()
    if not TAG.fullmatch(tag):
        raise DataError(
            f"{path}:{row.number}: {tag!r} is no tag; expected O, or B-, I-, E-, S-, L- or U- and a kind.",
            "The word is the first column and the tag the last (or second and third after a number).",
        )
    return tag
