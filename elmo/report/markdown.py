"""Writes a page as Markdown for a code host: tables, links to SVG files in the same folder, records at the end."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from elmo.report.page import Cell, Missing, Page, Part, Picture, Remark, Source, Table


def as_markdown(page: Page, *, html_name: str = "index.html") -> str:
    """The text of the Markdown file; pictures are expected as NAME.svg in the same folder."""
    parts = [
        f"# {_escape(page.title)}",
        f"The same report as a web page: [{html_name}]({html_name}).",
        _escape(page.intro),
    ]
    parts += ["\n".join(f"- {_escape(cell.text)}" for cell in page.tally)] if page.tally else []
    for section in page.all_sections:
        parts.append(f'<a id="{section.key}"></a>\n\n## {_escape(section.title)}')
        parts += [_part(part) for part in section.parts]
    if page.sources:
        parts.append("## Records")
        parts += map(_record, page.sources)
    return "\n\n".join(parts) + "\n"


def _part(part: Part) -> str:
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Picture):
        return f"![{_escape(part.caption)}]({part.name}.svg)\n\n{_escape(part.caption)}"
    if isinstance(part, Missing):
        return f"No records yet: {_escape(part.what)}. This command makes them:\n\n```sh\n{part.command}\n```"
    if isinstance(part, Remark):
        first, rest = part.first_sentence, part.rest
        return _unfolding(escape(first), _escape(rest)) if rest else _escape(first)
    return _escape(part)


def _unfolding(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _table(table: Table) -> str:
    rows = [_line(table.head), _line(["---", *["---" if table.has_sentences else "---:"] * (len(table.head) - 1)])]
    rows += [_line([_cell(cell) for cell in row]) for row in table.rows]
    notes = "".join(f"\n\n{_escape(note)}" for note in table.notes)
    body = "\n".join(rows) + notes
    return _unfolding(escape(table.caption), body) if table.collapsed else f"**{_escape(table.caption)}**\n\n{body}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return _escape(cell)
    text = f"**{_escape(cell.text)}**" if cell.strong else _escape(cell.text)
    text = f"[{text}](#{cell.source})" if cell.source else text
    return text + (f"<details><summary>Explanation</summary>{_escape(cell.note)}</details>" if cell.note else "")


def _record(source: Source) -> str:
    files = ", ".join(f"`{path}`" for path in source.paths)
    return f'<a id="{source.key}"></a>**{_escape(source.title)}**: {files}\n\n```sh\n{source.command}\n```'


def _escape(text: str) -> str:
    """The text on one line, with the characters escaped that have a meaning in Markdown or HTML."""
    for character in ("\\", "`", "*", "_", "[", "]", "<", ">"):
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
