"""A report from records to files: measured, put on a page, written as HTML, Markdown and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.files import atomic_file, explain_write
from elmo.report.collect import Evidence
from elmo.report.findings import Measured, Pattern, patterns, patterns_section, tally
from elmo.report.html import as_html
from elmo.report.layer_tables import LAYERS, PLACES, make_rows
from elmo.report.markdown import as_markdown
from elmo.report.mix_weights import mix_rows
from elmo.report.page import Page, Picture, Section, Sources
from elmo.report.probe_tables import pos_section, wsd_section
from elmo.report.sample_efficiency import sample_efficiency
from elmo.report.section_contexts import contexts_section, neighbours_section
from elmo.report.section_language_model import language_model_section
from elmo.report.section_six_tasks import (
    TaskSources,
    efficiency_section,
    layers_section,
    mixes_section,
    places_section,
    six_tasks,
)

HTML, MARKDOWN = "index.html", "README.md"


def measure(evidence: Evidence, table: Sequence[Mapping[str, Any]]) -> Measured:
    """What the records say. `table`: Table 1 as plain values, for it is the tasks' own to make."""
    return Measured(
        tasks=table,
        layers=make_rows(LAYERS, evidence.tasks),
        places=make_rows(PLACES, evidence.tasks),
        efficiency=sample_efficiency(evidence.tasks),
        updates=sample_efficiency(evidence.tasks, least_shares=1),
        mixes=mix_rows(evidence.tasks),
        probes=evidence.probes,
    )


def make_page(
    evidence: Evidence,
    *,
    table: Sequence[Mapping[str, Any]] = (),
    table_picture: str = "",
    notes: Mapping[str, str] | None = None,  # by a finding's key: why it is otherwise here; by a section's: a remark
    title: str = "ELMo: the paper's figures and ours",
) -> tuple[Page, list[Pattern]]:
    """The page, and the findings it opens with."""
    measured = measure(evidence, table)
    found = patterns(measured)
    notes = notes or {}
    sources = Sources()
    tasks = TaskSources(sources, evidence.tasks)
    sections = [
        patterns_section(found, notes),
        six_tasks(table, table_picture, tasks),
        layers_section(measured.layers, tasks),
        places_section(measured.places, tasks),
        neighbours_section(evidence, sources),
        wsd_section(evidence.probes, sources),
        pos_section(evidence.probes, sources),
        efficiency_section(measured.efficiency, measured.updates, tasks),
        mixes_section(measured.mixes, tasks),
        contexts_section(evidence, sources),
        language_model_section(evidence, sources),
    ]
    known = [one.key for one in found] + [section.key for section in sections]
    unknown = sorted(notes.keys() - set(known))
    if unknown:
        hint = f"Known: {', '.join(known)}."
        raise ConfigError(f"There is no finding or section {unknown[0]!r} to write a note on.", hint)
    sections = [_remarked(section, notes.get(section.key)) for section in sections]
    intro = (
        "Each table and picture of the paper's evaluation and analysis (its sections 4 and 5), with our figures beside "
        f"the paper's. Ours are from {len(evidence)} records of runs; each is a link to its record: the command, the "
        "settings and the data it was made with. First, which of the paper's findings hold here:"
    )
    page = Page(
        title=title, intro=intro, tally=tally(found), sections=sections, sources=list(sources.found.values())
    )  # fmt: skip
    return page, found


def _remarked(section: Section, remark: str | None) -> Section:
    """The section with a remark after its opening; `places` is a finding and a section, and its note stands above."""
    if remark is None or section.key == "places":
        return section
    return replace(section, parts=[*section.parts[:1], remark, *section.parts[1:]])


def write_page(page: Page, folder: str | Path) -> list[Path]:
    """Writes index.html, README.md and the pictures that README.md shows; what else lies there stays."""
    folder = Path(folder)
    with explain_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        f"{part.name}.svg": part.svg for section in page.sections for part in section.parts if isinstance(part, Picture)
    }
    files = {**pictures, MARKDOWN: as_markdown(page, html_name=HTML), HTML: as_html(page)}
    for name, text in files.items():
        with atomic_file(folder / name) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    return [folder / name for name in files]
