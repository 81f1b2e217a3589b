"""Builds the report from collected records, and writes it as HTML, Markdown and SVG files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from elmo.errors import ConfigError
from elmo.files import atomic_file, explain_write
from elmo.report.collect import Records
from elmo.report.findings import Finding, check_findings
from elmo.report.html import as_html
from elmo.report.layer_tables import LAYERS, PLACES
from elmo.report.markdown import as_markdown
from elmo.report.page import Page, Picture, Remark, Section
from elmo.report.results import compute_results
from elmo.report.section_contexts import contexts_section
from elmo.report.section_efficiency import efficiency_section
from elmo.report.section_findings import findings_section, tally
from elmo.report.section_finetuning import finetuning_section
from elmo.report.section_language_model import language_model_section
from elmo.report.section_layers import layers_section
from elmo.report.section_mixes import mixes_section
from elmo.report.section_neighbours import neighbours_section
from elmo.report.section_opening import opening_section
from elmo.report.section_senses import senses_section
from elmo.report.section_six_tasks import six_tasks_section
from elmo.report.section_tags import tags_section
from elmo.report.sources import Sources

HTML, MARKDOWN = "index.html", "README.md"
TITLE = "ELMo: the paper's figures and ours"


def make_page(
    records: Records, *, notes: Mapping[str, str] | None = None, title: str = TITLE
) -> tuple[Page, list[Finding]]:
    """The page, and the paper's findings with their verdicts.

    `notes` are texts by key: that of a finding explains why it does not agree with the paper, that of a section is a
    remark after its first sentence.
    """
    results = compute_results(records)
    findings = check_findings(results)
    notes = notes or {}
    sources = Sources(records.tasks)
    sections = [
        findings_section(findings, notes),
        six_tasks_section(results.tasks, sources),
        layers_section(LAYERS, results.layers, sources),
        layers_section(PLACES, results.places, sources),
        neighbours_section(records, sources),
        senses_section(records.probes, sources),
        tags_section(records.probes, sources),
        efficiency_section(results.efficiency, results.updates, sources),
        mixes_section(results.mixes, sources),
        finetuning_section(results.finetuning, sources),
        contexts_section(records, sources),
        language_model_section(records, sources),
    ]
    finding_keys = [finding.key for finding in findings]
    keys = [*finding_keys, *(section.key for section in sections)]
    unknown = sorted(notes.keys() - set(keys))
    if unknown:
        hint = f"Known: {', '.join(keys)}."
        raise ConfigError(f"There is no finding or section {unknown[0]!r} to write a note on.", hint)
    # `places` is the key of a finding and of a section: its note is shown with the finding
    remarks = {key: note for key, note in notes.items() if key not in finding_keys}
    intro = (
        "Every table and figure of the paper's evaluation and analysis (its sections 4 and 5), with our scores next to "
        f"the paper's. Ours come from {len(records)} records of runs, and each score links to its record."
    )
    page = Page(
        title=title,
        intro=intro,
        tally=tally(findings),
        opening=opening_section(results.tasks, records.demos),
        sections=[_with_remark(section, remarks.get(section.key)) for section in sections],
        sources=sources.all(),
    )
    return page, findings


def _with_remark(section: Section, remark: str | None) -> Section:
    """The section with a remark after its first part."""
    if remark is None:
        return section
    return replace(section, parts=[*section.parts[:1], Remark(text=remark), *section.parts[1:]])


def write_page(page: Page, folder: str | Path) -> list[Path]:
    """Writes index.html, README.md and the pictures that README.md shows; other files in the folder are kept."""
    folder = Path(folder)
    with explain_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        f"{part.name}.svg": part.svg
        for section in page.all_sections
        for part in section.parts
        if isinstance(part, Picture)
    }
    files = {**pictures, MARKDOWN: as_markdown(page, html_name=HTML), HTML: as_html(page)}
    for name, text in files.items():
        with atomic_file(folder / name) as partial:
            # "?" for bytes of a file's name that are not UTF-8
            partial.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return [folder / name for name in files]
