"""The report as values, before it becomes HTML or Markdown: sections with texts, tables, pictures, and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elmo.text.sentences import split_sentences


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where scores come from: what a reader needs to see how a number was measured."""

    key: str  # its id on the page
    title: str
    command: str  # makes the same records again
    paths: tuple[str, ...]  # of its records
    facts: Mapping[str, Any]  # settings, data, versions


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number or text of a table; `source` is the id that it links to: a source, or another part of the page."""

    text: str
    source: str = ""
    strong: bool = False
    verdict: str = ""  # good, even, bad or none, for the colour of a verdict
    note: str = ""  # an explanation, which the reader unfolds


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows below column heads; the first cell of each row is its head."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = ()
    collapsed: bool = False  # opened by the reader: details of a shorter table
    paired: bool = False  # after the first column, one half is the paper's and the other ours: a phone shows cards

    @property
    def has_sentences(self) -> bool:
        """Whether a cell holds a sentence instead of a number: such tables are aligned to the left."""
        cells = (cell for row in self.rows for cell in row[1:])
        return any(len(cell.text if isinstance(cell, Cell) else cell) > 32 for cell in cells)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An SVG with a title and a description inside; `name` is its id, and its file name without suffix."""

    name: str
    svg: str
    caption: str
    wide: bool = False  # too wide for a phone: shown in a region that scrolls


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A longer explanation: its first sentence is shown, and the reader unfolds the rest."""

    text: str

    @property
    def first_sentence(self) -> str:
        return self.text[: self._end_of_first_sentence].strip()

    @property
    def rest(self) -> str:
        return self.text[self._end_of_first_sentence :].strip()

    @property
    def _end_of_first_sentence(self) -> int:
        return next((span.end for span in split_sentences(self.text)), 0)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A part without records, and the command that makes them."""

    what: str
    command: str


Part = str | Remark | Table | Picture | Missing


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section of the report, usually for one table or figure of the paper."""

    key: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole report."""

    title: str
    intro: str
    tally: Sequence[Cell]  # how many findings agree with the paper and how many do not
    opening: Section | None = None  # pictures that stand before the list of sections
    sections: Sequence[Section]
    sources: Sequence[Source]

    @property
    def all_sections(self) -> Sequence[Section]:
        """The opening, if there is one, and the sections."""
        return [*([self.opening] if self.opening else []), *self.sections]
