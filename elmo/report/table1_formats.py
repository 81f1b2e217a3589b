"""Table 1 for reading: aligned text, Markdown, and plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from elmo.report.table1 import Entry, Row

HEAD = (
    "Task", "Previous SOTA", "Paper baseline", "Paper +ELMo", "Paper gain", "Our baseline", "Our +ELMo", "Our gain",
    "Seeds",
)  # fmt: skip


def as_text(rows: Sequence[Row]) -> str:
    """Columns under their names; the first is set left, figures right."""
    lines = [HEAD, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = ["  ".join(map(_padded, line, widths, range(len(HEAD)))) for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*(line.rstrip() for line in text), *notes(rows)]) + "\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """A GitHub table."""
    lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *map(_cells, rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([table, "", *notes(rows)]).rstrip() + "\n"


def as_values(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {
            "task": row.task,
            "paper": asdict(row.paper),
            "baseline": None if row.baseline is None else asdict(row.baseline),
            "elmo": None if row.elmo is None else asdict(row.elmo),
            "absolute": row.absolute,
            "relative": row.relative,
            "same_data": row.same_data,
        }
        for row in rows
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know to read the figures rightly."""
    found = ["Gain: points, and the share of the baseline's error that is gone. ± is the deviation over seeds."]
    for row in rows:
        if not row.same_data:
            found.append(f"{row.paper.title}: with and without ELMo are from different files; do not compare them.")
    return found


def _cells(row: Row) -> tuple[str, ...]:
    paper = row.paper
    spread = "" if paper.elmo_deviation is None else f" ± {paper.elmo_deviation}"
    ours = [_shown(row.baseline), _shown(row.elmo)]
    return (
        f"{paper.title} ({paper.metric})",
        f"{paper.previous} ({paper.source})",
        f"{paper.baseline}",
        f"{paper.elmo}{spread}",
        _gain(paper.absolute, paper.relative),
        *ours,
        _gain(row.absolute, row.relative),
        f"{_count(row.baseline)}/{_count(row.elmo)}",
    )


def _shown(entry: Entry | None) -> str:
    return "-" if entry is None else str(entry)


def _count(entry: Entry | None) -> int:
    return 0 if entry is None else len(entry.seeds)


def _gain(absolute: float | None, relative: float | None) -> str:
    if absolute is None:
        return "-"
    return f"{absolute:+.2f}" + ("" if relative is None else f" / {relative:.1f}%")


def _padded(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)
