"""A report as values, before it is HTML or Markdown: text, tables and pictures in sections, and figures' sources."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where figures come from: what a reader opens to see how a number was made."""

    key: str  # an id on the page
    title: str
    command: str  # that makes it again
    paths: tuple[str, ...]  # of its records
    facts: Mapping[str, Any]  # settings, data, versions


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure or word of a table; `source` is the id it leads to: its record's, or another part of the page."""

    text: str
    source: str = ""
    strong: bool = False
    mood: str = ""  # of a verdict: good, even, bad, none
    why: str = ""  # said after it, as plain text


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under column heads; the first cell of each row is its head."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = ()
    folded: bool = False  # shown when asked for: the figures behind a shorter table

    @property
    def has_words(self) -> bool:
        """Whether a cell holds a sentence rather than a figure: such tables are set otherwise."""
        cells = (cell for row in self.rows for cell in row[1:])
        return any(len(cell.text if isinstance(cell, Cell) else cell) > 32 for cell in cells)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An SVG with a title and a description inside; `name` is its id and its file."""

    name: str
    svg: str
    caption: str
    alone: bool = False  # its style is not held to its id: it cannot be put into a page, only shown as an image
    alt: str = ""  # what it shows, for a picture that stands alone


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A part without records, and the command that fills it."""

    what: str
    command: str


Part = str | Table | Picture | Missing


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the paper."""

    key: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole report."""

    title: str
    intro: str
    tally: Sequence[Cell]  # what holds and what does not, counted
    sections: Sequence[Section]
    sources: Sequence[Source]


@dataclass
class Sources:
    """Sources as they are met, each once, numbered in the order of the page."""

    found: dict[tuple[str, ...], Source] = field(default_factory=dict)

    def add(self, title: str, *, paths: Sequence[str], command: str, facts: Mapping[str, Any]) -> str:
        """The key of the source with these records; made when they are new."""
        name = (title, *paths)
        if name not in self.found:
            self.found[name] = Source(
                key=f"record-{len(self.found) + 1}",
                title=title,
                command=short_command(command),
                paths=tuple(paths),
                facts=short(facts),
            )
        return self.found[name].key


def short(value: Any) -> Any:
    """Plain values with each absolute path cut to its last two parts: the rest belongs to one machine."""
    if isinstance(value, Mapping):
        return {str(key): short(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [short(item) for item in value]
    return short_path(value) if isinstance(value, str) else value


def short_path(text: str) -> str:
    is_path = re.fullmatch(r"(/|[A-Za-z]:[\\/])\S.*", text) is not None
    return "/".join(re.split(r"[\\/]", text.rstrip("/\\"))[-2:]).lstrip("/") if is_path else text


def short_command(command: str) -> str:
    """A command whose absolute paths are cut likewise, in settings (key=/a/b/c) too."""
    words = []
    for word in shlex.split(command):
        key, equals, value = word.partition("=")
        words.append(f"{key}={short_path(value)}" if equals else short_path(word))
    return shlex.join(words)
