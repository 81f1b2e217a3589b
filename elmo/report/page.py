"""The report as values, before it becomes HTML or Markdown: sections with texts, tables, pictures, and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
    note: str = ""  # follows the text, without its colour


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows below column heads; the first cell of each row is its head."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = ()
    collapsed: bool = False  # opened by the reader: details of a shorter table

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
class Missing:
    """A part without records, and the command that makes them."""

    what: str
    command: str


Part = str | Table | Picture | Missing


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
    sections: Sequence[Section]
    sources: Sequence[Source]
