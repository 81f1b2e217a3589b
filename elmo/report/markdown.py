"""The same report as Markdown, for a code host: tables, links to pictures beside it, and the records at the end."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from elmo.report.page import Cell, Missing, Page, Part, Picture, Source, Table


def as_markdown(page: Page, *, html_name: str = "index.html") -> str:
    """The whole text; pictures are named NAME.svg, to lie beside it."""
    parts = [f"# {_plain(page.title)}", f"The same as a page: [{html_name}]({html_name}).", _plain(page.intro)]
    parts += ["\n".join(f"- {_plain(cell.text)}" for cell in page.tally)] if page.tally else []
    for section in page.sections:
        parts.append(f'<a id="{section.key}"></a>\n\n## {_plain(section.title)}')
        parts += [_part(part) for part in section.parts]
    if page.sources:
        parts.append("## Records")
        parts += map(_record, page.sources)
    return "\n\n".join(parts) + "\n"


def _part(part: Part) -> str:
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Picture):
        return f"![{_plain(part.caption)}]({part.name}.svg)\n\n{_plain(part.caption)}"
    if isinstance(part, Missing):
        return f"No records yet: {_plain(part.what)}. This fills it:\n\n```sh\n{part.command}\n```"
    return _plain(part)


def _table(table: Table) -> str:
    rows = [_line(table.head), _line(["---", *["---" if table.has_words else "---:"] * (len(table.head) - 1)])]
    rows += [_line([_cell(cell) for cell in row]) for row in table.rows]
    notes = "".join(f"\n\n{_plain(note)}" for note in table.notes)
    body = "\n".join(rows) + notes
    if table.folded:
        return f"<details><summary>{escape(table.caption)}</summary>\n\n{body}\n\n</details>"
    return f"**{_plain(table.caption)}**\n\n{body}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return _plain(cell)
    text = f"**{_plain(cell.text)}**" if cell.strong else _plain(cell.text)
    text += f": {_plain(cell.why)}" if cell.why else ""
    return f"[{text}](#{cell.source})" if cell.source else text


def _record(source: Source) -> str:
    files = ", ".join(f"`{path}`" for path in source.paths)
    return f'<a id="{source.key}"></a>**{_plain(source.title)}**: {files}\n\n```sh\n{source.command}\n```'


def _plain(text: str) -> str:
    """Text whose characters Markdown or HTML would read as marks are escaped."""
    for mark in ("\\", "`", "*", "_", "[", "]", "<", ">"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
