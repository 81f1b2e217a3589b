"""The paper's Tables 2 and 3 from task runs: which layers of ELMo, with which regularization, and in which place.

Scores are on dev, as in the paper. The columns of a task come from runs that agree in every other setting and in all
files; if a task has several such sets, the one with the most columns counts, then the one with the most runs, then the
best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elmo.report.run_groups import (
    Record,
    Score,
    data_share,
    group_runs,
    metric_title,
    score,
    settings_key,
    task_title,
    tasks_in_order,
)
from elmo.report.text_table import align_columns, markdown_table


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """What defines one of the two tables."""

    key: str  # of its section in the report, and of `elmo task sweep --only`
    title: str
    columns: tuple[str, ...]
    column: Callable[[Record], int | None]  # the column that a record belongs to
    varied: tuple[str, ...]  # settings in which the columns differ
    paper: Mapping[str, tuple[float, ...]]  # by task; dev scores of Peters et al. 2018


@dataclass(frozen=True, kw_only=True)
class Row:
    """One task: the paper's scores if it has them, and ours."""

    task: str
    metric: str
    paper: tuple[float, ...] | None
    ours: tuple[Score | None, ...]
    share: float  # of the training file

    @property
    def title(self) -> str:
        return task_title(self.task)


def _layers_column(record: Record) -> int | None:
    if record["elmo"] is None:
        return 0
    elmo = record["config"]["elmo"]
    if elmo["layers"] == "top":
        return 1
    return {1.0: 2, 0.001: 3}.get(elmo["penalty"])


def _place_column(record: Record) -> int | None:
    elmo = record["config"]["elmo"]
    if record["elmo"] is None or elmo["layers"] != "all":
        return None
    return {"input": 0, "both": 1, "output": 2}[elmo["place"]]


LAYERS = LayerTable(
    key="layers",
    title="Which layers (Table 2, dev)",
    columns=("baseline", "last layer only", "all, λ = 1", "all, λ = 0.001"),
    column=_layers_column,
    varied=("elmo.layers", "elmo.penalty"),
    paper={
        "squad": (80.8, 84.7, 85.0, 85.2),
        "snli": (88.1, 89.1, 89.3, 89.5),
        "srl": (81.6, 84.1, 84.6, 84.8),
    },
)
PLACES = LayerTable(
    key="places",
    title="Which place (Table 3, dev)",
    columns=("input only", "input and output", "output only"),
    column=_place_column,
    varied=("elmo.place",),
    paper={"squad": (85.1, 85.6, 84.8), "snli": (88.9, 89.5, 88.7), "srl": (84.7, 84.3, 80.9)},
)


def make_rows(table: LayerTable, records: Sequence[Record]) -> list[Row]:
    """One row for each task in which at least two columns with ELMo can be compared, in the paper's order."""
    rows = []
    for task in tasks_in_order(records):
        candidates = _candidate_rows(table, [r for r in records if r["task"] == task])
        if candidates:
            rows.append(max(candidates, key=_rank))
    return rows


def _candidate_rows(table: LayerTable, records: Sequence[Record]) -> list[Row]:
    """One row for each set of runs that differ only in the settings of the columns."""
    with_elmo = group_runs([r for r in records if r["elmo"] is not None], ignore=table.varied)
    baselines = group_runs([r for r in records if r["elmo"] is None])
    rows = []
    for runs in with_elmo.values():
        columns: list[list[Record]] = [[] for _ in table.columns]
        baseline = baselines.get(settings_key(runs[0], ignore=("elmo",)), [])
        for record in [*runs, *baseline]:
            column = table.column(record)
            if column is not None:
                columns[column].append(record)
        # the penalty has no effect on the last layer alone, so only one of its settings is used
        columns = [next(iter(group_runs(column).values())) if column else [] for column in columns]
        if sum(bool(column) and column[0]["elmo"] is not None for column in columns) >= 2:
            task = runs[0]["task"]
            ours = tuple(score(column, split="dev") if column else None for column in columns)
            share = data_share(runs[0])
            metric = metric_title(runs[0]["metric"])
            rows.append(Row(task=task, metric=metric, paper=table.paper.get(task), ours=ours, share=share))
    return rows


def _rank(row: Row) -> tuple[float, ...]:
    """The larger, the rather a row is shown: columns, share of the data, runs, best score."""
    scores = [s for s in row.ours if s is not None]
    return len(scores), row.share, sum(len(s.values) for s in scores), max(s.mean for s in scores)


def as_text(table: LayerTable, rows: Sequence[Row]) -> str:
    """Aligned columns, the paper's line above ours, with the notes below."""
    return "\n".join([table.title, *align_columns(_lines("", table, rows), num_left=1), *notes(rows)]) + "\n"


def as_markdown(table: LayerTable, rows: Sequence[Row]) -> str:
    """A Markdown table with the notes below."""
    text = markdown_table(_lines("Task", table, rows), num_left=1)
    return "\n".join([f"**{table.title}**", "", text, "", *notes(rows)]).rstrip() + "\n"


def as_values(table: LayerTable, rows: Sequence[Row]) -> dict[str, Any]:
    """Plain values for JSON."""
    return {"title": table.title, "columns": list(table.columns), "rows": [asdict(row) for row in rows]}


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know to read the table correctly."""
    texts = [
        f"{row.title}: trained on {100 * row.share:g} percent of the training file." for row in rows if row.share < 1
    ]
    if rows:
        seeds = [f"{row.title} {', '.join(str(len(s.values)) for s in row.ours if s is not None)}" for row in rows]
        texts.append(f"Number of seeds by column: {'; '.join(seeds)}.")
    return texts


def _lines(corner: str, table: LayerTable, rows: Sequence[Row]) -> list[list[str]]:
    lines = [[corner, *table.columns]]
    for row in rows:
        paper = ["-"] * len(table.columns) if row.paper is None else list(map(str, row.paper))
        lines.append([f"{row.title} (paper)", *paper])
        lines.append([f"{row.title} {row.metric}", *("-" if s is None else str(s) for s in row.ours)])
    return lines
