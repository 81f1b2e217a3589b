"""Table 1 as aligned text, Markdown, plain values for JSON, and as a bar chart of the gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from elmo.charts.gains import Gain, GainPair, gain_chart
from elmo.report.table1 import Entry, Row
from elmo.report.text_table import align_columns, markdown_table

HEAD = (
    "Task", "Previous SOTA", "Paper baseline", "Paper +ELMo", "Paper gain", "Our baseline", "Our +ELMo", "Our gain",
    "Seeds",
)  # fmt: skip


def as_text(rows: Sequence[Row]) -> str:
    """Aligned columns with the notes below."""
    return "\n".join([*align_columns([HEAD, *map(_cells, rows)], num_left=2, rule=True), *notes(rows)]) + "\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """A Markdown table with the notes below."""
    table = markdown_table([HEAD, *map(_cells, rows)], num_left=1)
    return "\n".join([table, "", *notes(rows)]).rstrip() + "\n"


def as_values(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Plain values for JSON."""
    return [
        {
            "task": row.task,
            "paper": asdict(row.paper),
            "baseline": None if row.baseline is None else asdict(row.baseline),
            "elmo": None if row.elmo is None else asdict(row.elmo),
            "absolute": row.absolute,
            "relative": row.relative,
            "same_data": row.same_data,
            "is_finetuned": row.is_finetuned,
        }
        for row in rows
    ]


def as_svg(rows: Sequence[Row], name: str = "six-tasks-picture") -> str:
    """A bar chart of the gains, the paper's above ours."""
    return gain_chart(
        name,
        list(map(_gain_pair, rows)),
        title="What ELMo adds on six tasks, in points",
        description="; ".join(map(_sentence, rows)) or "No runs.",
        missing="runs without or with ELMo are missing",
    )


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know to read the table correctly."""
    texts = ["Gain: points / relative error reduction. ± is the standard deviation over seeds."]
    for row in rows:
        if not row.same_data:
            differ = "with and without ELMo have different files or word vectors; do not compare them"
            texts.append(f"{row.paper.title}: {differ}.")
        if row.is_finetuned:
            texts.append(f"{row.paper.title}: the biLM was first fine-tuned on the text of the task.")
    return texts


def gain_text(absolute: float | None, relative: float | None) -> str:
    """A gain in points and its relative error reduction, such as "+2.06 / 21.0%"."""
    if absolute is None:
        return "-"
    return f"{absolute:+.2f}" + ("" if relative is None else f" / {relative:.1f}%")


def _cells(row: Row) -> tuple[str, ...]:
    paper = row.paper
    deviation = "" if paper.elmo_deviation is None else f" ± {paper.elmo_deviation}"
    return (
        f"{paper.title} ({paper.metric})",
        f"{paper.previous} ({paper.source})",
        f"{paper.baseline}",
        f"{paper.elmo}{deviation}",
        gain_text(paper.absolute, paper.relative),
        *("-" if entry is None else str(entry) for entry in (row.baseline, row.elmo)),
        gain_text(row.absolute, row.relative),
        f"{_num_seeds(row.baseline)}/{_num_seeds(row.elmo)}",
    )


def _num_seeds(entry: Entry | None) -> int:
    return 0 if entry is None else len(entry.seeds)


def _gain_pair(row: Row) -> GainPair:
    paper, ours = row.paper, None
    if row.baseline is not None and row.elmo is not None and row.absolute is not None:
        deviation = max(row.baseline.deviation or 0.0, row.elmo.deviation or 0.0)
        ours = Gain(before=row.baseline.mean, after=row.elmo.mean, gain=row.absolute, deviation=deviation)
    published = Gain(before=paper.baseline, after=paper.elmo, gain=paper.absolute)
    return GainPair(label=f"{paper.title}, {paper.metric}", published=published, ours=ours)


def _sentence(row: Row) -> str:
    ours = f"ours {row.baseline.mean:.1f} to {row.elmo.mean:.1f}" if row.baseline and row.elmo else "ours incomplete"
    return f"{row.paper.title}: paper {row.paper.baseline} to {row.paper.elmo}, {ours}"
