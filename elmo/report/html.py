"""Writes a page as one self-contained HTML file: style, pictures and records are inside, nothing is fetched.

Landmarks, captions, scopes of table heads and descriptions of pictures serve screen readers. The script opens the
record that a score links to, marks what is wider than the screen, and unfolds explanations for print; without it, links
and shadows at the edges remain.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from elmo.report.page import Cell, Missing, Page, Part, Picture, Remark, Section, Source, Table
from elmo.report.stylesheet import style_sheet

PAPER_ADDRESS = "https://arxiv.org/abs/1802.05365"
_SCRIPT = """
function showRecord() {
  const target = document.querySelector(".records li:target");
  if (target) { target.querySelector("details").open = true; target.scrollIntoView(); }
}
function markWide() {
  for (const one of document.querySelectorAll(".wide"))
    one.classList.toggle("overflows", one.scrollWidth > one.clientWidth + 1);
}
function unfold() { for (const one of document.querySelectorAll("details.more")) one.open = true; }
addEventListener("hashchange", showRecord); showRecord();
addEventListener("resize", markWide); addEventListener("toggle", markWide, true); markWide();
addEventListener("beforeprint", unfold);
"""


def as_html(page: Page) -> str:
    """The text of the HTML file."""
    opening = _section(page.opening) if page.opening else ""
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
<a class="skip" href="#main">Skip to the results</a>
<header>
<h1>{escape(page.title)}</h1>
<p>{escape(page.intro)}</p>
{_tally(page.tally)}
</header>
<main id="main">
{opening}
<nav aria-label="Sections">
<ul>
{nav}
</ul>
</nav>
{chr(10).join(sections)}
</main>
<footer>
<p>The paper: Peters et al. 2018, <cite><a href="{PAPER_ADDRESS}">Deep contextualized word
representations</a></cite>. A number that is a link leads to its record.</p>
</footer>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _tally(cells: Sequence[Cell]) -> str:
    items = "".join(f'<li class="verdict {cell.verdict}">{escape(cell.text)}</li>' for cell in cells)
    return f'<ul class="tally" aria-label="Number of findings by verdict">{items}</ul>' if items else ""


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
        return (
            f'<div class="missing"><p>No records yet: {escape(part.what)}. This command makes them:</p>{command}</div>'
        )
    if isinstance(part, Remark):
        first, rest = escape(part.first_sentence), escape(part.rest)
        return _unfolding(first, f"<p>{rest}</p>", kind="more remark") if rest else f"<p>{first}</p>"
    return f"<p>{escape(part)}</p>"


def _unfolding(summary: str, body: str, *, kind: str = "more") -> str:
    return f'<details class="{kind}"><summary>{summary}</summary>\n{body}\n</details>'


def _table(table: Table, key: str) -> str:
    heads = "".join(f'<th scope="col" role="columnheader">{escape(head)}</th>' for head in table.head)
    rows = "\n".join(_row(row, table.head) for row in table.rows)
    # CSS makes cards of the rows of such tables on a phone; the roles keep them tables for screen readers
    kind = "paired" if table.paired else "words" if table.has_sentences else ""
    attributes = f' class="{kind}" role="table"' if kind else ""
    if table.paired:  # the number of rows of a card
        attributes += f' style="--half: {(len(table.head) - 1) // 2}"'
    notes = "".join(f'\n<p class="note">{escape(note)}</p>' for note in table.notes)
    element = (
        f'<div class="wide" role="region" aria-labelledby="{key}-caption" tabindex="0">\n'
        f"<table{attributes}>\n"
        f'<caption id="{key}-caption">{escape(table.caption)}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody>\n</table>{notes}\n</div>'
    )
    return _unfolding(escape(table.caption), element) if table.collapsed else element


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
    text = f'<span class="verdict {cell.verdict}">{text}</span>' if cell.verdict else text
    text = f'<a href="#{cell.source}">{text}</a>' if cell.source else text
    return text + (_unfolding("Explanation", f"<p>{escape(cell.note)}</p>") if cell.note else "")


def _picture(picture: Picture) -> str:
    svg, caption = picture.svg.strip(), escape(picture.caption)
    if picture.wide:
        svg = f'<div class="wide" role="region" aria-label="{caption}" tabindex="0">\n{svg}\n</div>'
    return f"<figure>\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>"


def _records(sources: Sequence[Source]) -> str:
    items = "\n".join(map(_record, sources))
    return (
        '<section id="records" aria-labelledby="records-title">\n<h2 id="records-title">Records</h2>\n'
        "<p>Where each score comes from: the command, the record files, the settings, the data and the versions.</p>\n"
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
