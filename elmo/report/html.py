"""A report as one HTML page that needs nothing else: style, pictures and records are inside, nothing is fetched.

Landmarks, captions, heads with a scope and described pictures are for those who listen to it. The one script opens the
record a figure links to; without it the link leads there all the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape

from elmo.report.page import Cell, Missing, Page, Part, Picture, Section, Source, Table
from elmo.report.stylesheet import style_sheet

PAPER_ADDRESS = "https://arxiv.org/abs/1802.05365"
_SCRIPT = """
function show() {
  const at = location.hash && document.getElementById(location.hash.slice(1));
  const box = at && at.querySelector("details");
  if (box) { box.open = true; at.scrollIntoView(); }
}
addEventListener("hashchange", show); show();
"""


def as_html(page: Page) -> str:
    """The whole page."""
    sections = [_section(section) for section in page.sections]
    links = [(section.key, section.title) for section in page.sections]
    if page.sources:
        sections.append(_records(page.sources))
        links.append(("records", "Records"))
    nav = "\n".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in links)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)}</title>
<link rel="icon" href="data:,">
<style>
{style_sheet()}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header>
<h1>{escape(page.title)}</h1>
<p>{escape(page.intro)}</p>
{_tally(page.tally)}
</header>
<nav aria-label="Sections">
<ul>
{nav}
</ul>
</nav>
<main id="main">
{chr(10).join(sections)}
</main>
<footer>
<p>The paper's figures: Peters et al. 2018, <cite><a href="{PAPER_ADDRESS}">Deep contextualized word
representations</a></cite>. A figure that is a link leads to its record.</p>
</footer>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _tally(cells: Sequence[Cell]) -> str:
    items = "".join(f'<li class="verdict {cell.mood}">{escape(cell.text)}</li>' for cell in cells)
    return f'<ul class="tally" aria-label="Findings, counted">{items}</ul>' if items else ""


def _section(section: Section) -> str:
    body = "\n".join(_part(part, f"{section.key}-{number}") for number, part in enumerate(section.parts, start=1))
    head = f'<h2 id="{section.key}-title">{escape(section.title)}</h2>'
    return f'<section id="{section.key}" aria-labelledby="{section.key}-title">\n{head}\n{body}\n</section>'


def _part(part: Part, key: str) -> str:
    if isinstance(part, Table):
        return _table(part, key)
    if isinstance(part, Picture):
        return _picture(part)
    if isinstance(part, Missing):
        command = f"<pre><code>{escape(part.command)}</code></pre>"
        return f'<div class="missing"><p>No records yet: {escape(part.what)}. This fills it:</p>{command}</div>'
    return f"<p>{escape(part)}</p>"


def _table(table: Table, key: str) -> str:
    heads = "".join(f'<th scope="col" role="columnheader">{escape(head)}</th>' for head in table.head)
    rows = "\n".join(_row(row, table.head) for row in table.rows)
    # such a table is stacked on a phone, and the roles keep it a table for those who listen
    kind = ' class="words" role="table"' if table.has_words else ""
    notes = "".join(f'\n<p class="note">{escape(note)}</p>' for note in table.notes)
    shown = (
        f'<div class="wide" role="region" aria-labelledby="{key}-caption" tabindex="0">\n'
        f"<table{kind}>\n"
        f'<caption id="{key}-caption">{escape(table.caption)}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody>\n</table>{notes}\n</div>'
    )
    if not table.folded:
        return shown
    return f'<details class="more"><summary>{escape(table.caption)}</summary>\n{shown}\n</details>'


def _row(row: Sequence[Cell | str], heads: Sequence[str]) -> str:
    first, *rest = (cell if isinstance(cell, Cell) else Cell(text=cell) for cell in row)
    cells = [
        f'<td role="cell" data-head="{escape(head)}">{_cell(cell)}</td>'
        for cell, head in zip(rest, heads[1:], strict=True)
    ]
    return f'<tr role="row"><th scope="row" role="rowheader">{_cell(first)}</th>{"".join(cells)}</tr>'


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    text = f"<strong>{text}</strong>" if cell.strong else text
    text = f'<span class="verdict {cell.mood}">{text}</span>' if cell.mood else text
    text += f": {escape(cell.why)}" if cell.why else ""
    return f'<a href="#{cell.source}">{text}</a>' if cell.source else text


def _picture(picture: Picture) -> str:
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    if not picture.alone:
        return f"<figure>\n{picture.svg.strip()}\n{caption}\n</figure>"
    data = base64.b64encode(picture.svg.encode()).decode()
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(picture.alt)}">'
    region = f'<div class="wide" role="region" aria-label="{escape(picture.caption)}" tabindex="0">{image}</div>'
    return f"<figure>\n{region}\n{caption}\n</figure>"


def _records(sources: Sequence[Source]) -> str:
    items = "\n".join(map(_record, sources))
    return (
        '<section id="records" aria-labelledby="records-title">\n<h2 id="records-title">Records</h2>\n'
        "<p>What each figure was made with: the command, the files of the records, settings, data and versions.</p>\n"
        f'<ul class="records">\n{items}\n</ul>\n</section>'
    )


def _record(source: Source) -> str:
    files = "".join(f"<li><code>{escape(path)}</code></li>" for path in source.paths)
    facts = escape(json.dumps(source.facts, indent=1, ensure_ascii=False))
    return (
        f'<li id="{source.key}"><details><summary>{escape(source.title)}</summary><div>\n'
        f"<pre><code>{escape(source.command)}</code></pre>\n<ul>{files}</ul>\n"
        f"<pre><code>{facts}</code></pre></div></details></li>"
    )
