"""The paper's Tables 2 and 3 from records: which layers, how strongly held to their average, and in which place.

Figures are on dev, as the paper's. A task's columns come from runs that share every other setting and all files; where
a task has several such sets, the one with the most columns counts, then the one with the most runs, then the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elmo.report.run_groups import TITLES, Record, Score, grouped, score, settings_key, share_of, title_of

_BASE = ("elmo",)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One of the two tables."""

    title: str
    columns: tuple[str, ...]
    column: Callable[[Record], int | None]  # which one a record belongs to
    varied: tuple[str, ...]  # settings in which the columns differ
    paper: Mapping[str, tuple[float, ...]]  # by task; dev figures of Peters et al. 2018


@dataclass(frozen=True, kw_only=True)
class Row:
    """One task: the paper's figures where it has them, and ours."""

    task: str
    metric: str
    paper: tuple[float, ...] | None
    ours: tuple[Score | None, ...]
    share: float  # of the training file

    @property
    def title(self) -> str:
        return title_of(self.task)


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


LAYERS = Kind(
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
PLACES = Kind(
    title="Which place (Table 3, dev)",
    columns=("input only", "input and output", "output only"),
    column=_place_column,
    varied=("elmo.place",),
    paper={"squad": (85.1, 85.6, 84.8), "snli": (88.9, 89.5, 88.7), "srl": (84.7, 84.3, 80.9)},
)


def make_rows(kind: Kind, records: Sequence[Record]) -> list[Row]:
    """A row for every task in which at least two columns with ELMo can be compared, in the paper's order."""
    rows = []
    for task in sorted({r["task"] for r in records}, key=lambda t: (t not in TITLES, [*TITLES, t].index(t))):
        found = [row for row in _sets(kind, [r for r in records if r["task"] == task]) if row is not None]
        if found:
            rows.append(max(found, key=_worth))
    return rows


def _sets(kind: Kind, records: Sequence[Record]) -> list[Row | None]:
    """One row for each set of runs that differ in the columns' settings alone."""
    with_elmo = grouped([r for r in records if r["elmo"] is not None], leaving=kind.varied)
    without = grouped([r for r in records if r["elmo"] is None])
    rows: list[Row | None] = []
    for runs in with_elmo.values():
        columns: list[list[Record]] = [[] for _ in kind.columns]
        base = settings_key(runs[0], leaving=_BASE)
        for record in [*runs, *without.get(base, [])]:
            place = kind.column(record)
            if place is not None:
                columns[place].append(record)
        # penalty means nothing to the last layer alone: keep one setting of it
        columns = [next(iter(grouped(column).values())) if column else [] for column in columns]
        num_elmo = sum(bool(column) and column[0]["elmo"] is not None for column in columns)
        ours = tuple(score(column, split="dev") if column else None for column in columns)
        task, metric, share = runs[0]["task"], runs[0]["metric"], share_of(runs[0])
        row = Row(task=task, metric=metric, paper=kind.paper.get(task), ours=ours, share=share)
        rows.append(row if num_elmo >= 2 else None)
    return rows


def _worth(row: Row) -> tuple[float, ...]:
    filled = [s for s in row.ours if s is not None]
    return len(filled), row.share, sum(len(s.values) for s in filled), max(s.mean for s in filled)


def as_text(kind: Kind, rows: Sequence[Row]) -> str:
    """Columns under their names, the paper's line above ours."""
    lines = _lines("", kind, rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [line[0].ljust(widths[0]) + "".join(f"  {c:>{w}}" for c, w in zip(line[1:], widths[1:], strict=True))
            for line in lines]  # fmt: skip
    return "\n".join([kind.title, *text, *notes(rows)]) + "\n"


def as_markdown(kind: Kind, rows: Sequence[Row]) -> str:
    """A GitHub table."""
    lines = _lines("Task", kind, rows)
    lines.insert(1, ["---", *["---:"] * len(kind.columns)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([f"**{kind.title}**", "", table, "", *notes(rows)]).rstrip() + "\n"


def _lines(corner: str, kind: Kind, rows: Sequence[Row]) -> list[list[str]]:
    lines = [[corner, *kind.columns]]
    for row in rows:
        paper = ["-"] * len(kind.columns) if row.paper is None else list(map(str, row.paper))
        lines.append([f"{row.title} (paper)", *paper])
        lines.append([f"{row.title} {row.metric}", *("-" if s is None else str(s) for s in row.ours)])
    return lines


def as_values(kind: Kind, rows: Sequence[Row]) -> dict[str, Any]:
    """For JSON."""
    return {"title": kind.title, "columns": list(kind.columns), "rows": [asdict(row) for row in rows]}


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know to read the figures rightly."""
    found = [
        f"{row.title}: trained on {100 * row.share:g} percent of the training file." for row in rows if row.share < 1
    ]
    seeds = [f"{row.title} {', '.join(str(len(s.values)) for s in row.ours if s is not None)}" for row in rows]
    return [*found, f"Seeds, column by column: {'; '.join(seeds)}."] if rows else found
