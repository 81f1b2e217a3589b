"""The section on the six tasks (Table 1): scores with and without ELMo, the paper's and ours."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.report.page import Cell, Missing, Section, Table
from elmo.report.sources import Sources
from elmo.report.table1 import Entry, Row
from elmo.report.table1_formats import gain_text, notes

KEY, TITLE = "six-tasks", "Six tasks (Table 1)"
_FILES = "--train train.iob2 --dev dev.iob2 --test test.iob2"
_HEAD = (
    "Task", "Paper: baseline", "Paper: +ELMo", "Paper: gain", "Previous best",
    "Ours: baseline", "Ours: +ELMo", "Ours: gain", "Our seeds",
)  # fmt: skip


def six_tasks_section(rows: Sequence[Row], sources: Sources) -> Section:
    """Table 1 without the chart of the gains, which is in the opening section of the page."""
    if not rows:
        command = f"elmo task train ner {_FILES} --seeds 3 --out runs/ner\n"
        command += f"elmo task train ner {_FILES} --seeds 3 --elmo default --out runs/ner-elmo"
        return Section(
            key=KEY, title=TITLE, parts=[Missing(what="task runs on a whole training file", command=command)]
        )
    table = Table(
        caption="Test scores with and without ELMo, the paper's and ours",
        head=_HEAD,
        rows=[_cells(row, sources) for row in rows],
        notes=notes(rows),
        paired=True,
    )
    text = "The data differs from the paper's for several tasks: the gains can be compared, the scores cannot."
    return Section(key=KEY, title=TITLE, parts=[text, table])


def _cells(row: Row, sources: Sources) -> list[Cell | str]:
    paper, ours = row.paper, (row.baseline, row.elmo)
    deviation = "" if paper.elmo_deviation is None else f" ± {paper.elmo_deviation}"
    return [
        f"{paper.title} ({paper.metric})",
        f"{paper.baseline}",
        f"{paper.elmo}{deviation}",
        gain_text(paper.absolute, paper.relative),
        f"{paper.previous}",
        *(_entry_cell(entry, sources) for entry in ours),
        Cell(text=gain_text(row.absolute, row.relative), strong=True),
        " / ".join(str(len(entry.seeds) if entry else 0) for entry in ours),
    ]


def _entry_cell(entry: Entry | None, sources: Sources) -> Cell:
    return Cell(text="-") if entry is None else Cell(text=str(entry), source=sources.add_runs(entry.paths))
