"""The sections on layers and places (Tables 2 and 3): which layers of ELMo, and where they enter the task's model."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.report.layer_tables import LayerTable, Row, notes
from elmo.report.page import Cell, Missing, Part, Section, Table
from elmo.report.run_groups import Score, task_title
from elmo.report.significance import PooledDeviation, compare, pool_scores
from elmo.report.sources import Sources

_TEXTS = {  # key of the table -> title and first sentence of its section
    "layers": (
        "Which layers (Table 2)",
        "λ pulls the mix towards the plain average of the layers: 1 nearly forces it, 0.001 lets the task choose.",
    ),
    "places": (
        "Which place (Table 3)",
        "ELMo is concatenated to the word vectors, to the states of the task's own encoder, or to both.",
    ),
}


def layers_section(table: LayerTable, rows: Sequence[Row], sources: Sources) -> Section:
    """Table 2 or 3: the paper's line above ours for each task, then the paper's other tasks."""
    title, text = _TEXTS[table.key]
    parts: list[Part] = [text]
    if not rows:
        command = f"elmo task sweep ner --train train.iob2 --dev dev.iob2 --only {table.key} --out runs/ner-sweep"
        parts.append(Missing(what="runs that differ only in this setting", command=command))
    lines: list[list[Cell | str]] = []
    for row in rows:
        if row.paper is not None:
            lines.append([f"{row.title}, paper", *map(str, row.paper)])
        best = max((score for score in row.ours if score is not None), key=lambda score: score.mean)
        pooled = pool_scores(row.ours)
        cells = [sources.score_cell(score, strong=_is_among_best(score, best, pooled)) for score in row.ours]
        lines.append([f"{row.title}, here ({row.metric})", *cells])
    tasks = {row.task for row in rows}
    for task in (task for task in table.paper if task not in tasks):
        lines.append([f"{task_title(task)}, paper", *map(str, table.paper[task])])
    bold = ["Bold: the best of ours, and scores without a significant difference from it."] if rows else []
    caption = f"{table.title}: the paper's scores and ours"
    parts.append(Table(caption=caption, head=("Task", *table.columns), rows=lines, notes=[*bold, *notes(rows)]))
    return Section(key=table.key, title=title, parts=parts)


def _is_among_best(score: Score | None, best: Score, pooled: PooledDeviation | None) -> bool:
    return score is best or (pooled is not None and compare(best, score, pooled) == 0)
