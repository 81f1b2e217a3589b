"""The section on fine-tuning (Table 7): perplexity of a task's text before and after, and the scores of the task."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.report.page import Cell, Missing, Part, Section, Table
from elmo.report.run_groups import metric_title, task_title
from elmo.report.sources import Sources
from elmo.report.table7 import PAPER, Row

_HEAD = (
    "Text", "Paper: before", "Paper: after", "Before", "After", "Dev score, biLM not tuned", "Dev score, biLM tuned",
)  # fmt: skip


def finetuning_section(rows: Sequence[Row], sources: Sources) -> Section:
    """Table 7 with the dev scores of the tasks."""
    text = (
        "The biLM is trained for an epoch on the text of a task's training file, without labels, and is then frozen. "
        "The paper: on dev this improves SNLI by 0.6 points and leaves sentiment as it is. Perplexities of different "
        "vocabularies cannot be compared; their change can."
    )
    parts: list[Part] = [text]
    if not rows:
        command = "elmo task train ner --train train.iob2 --dev dev.iob2 --elmo default --finetune-bilm --out runs/ner"
        parts.append(Missing(what="runs with a biLM that was fine-tuned on the task's text", command=command))
    lines = [_cells(row, sources) for row in rows]
    shown = {(row.task, row.part) for row in rows}
    for (task, part), (before, after) in PAPER.items():
        if (task, part) not in shown:
            lines.append([f"{task_title(task)} {part}".rstrip(), f"{before}", f"{after}", *["-"] * 4])
    caption = "Dev perplexity before and after fine-tuning, and dev scores: the paper's and ours"
    notes = ["Perplexity: full softmax, mean of both directions, state reset at each sentence."] if rows else []
    parts.append(Table(caption=caption, head=_HEAD, rows=lines, notes=notes))
    return Section(key="finetuning", title="Fine-tuning on the task's text (Table 7)", parts=parts)


def _cells(row: Row, sources: Sources) -> list[Cell | str]:
    key = sources.add_runs(row.tuned.paths)
    return [
        f"{row.title} ({metric_title(row.metric)})",
        *map(str, row.paper or ("-", "-")),
        Cell(text=f"{row.before:.1f}", source=key),
        Cell(text=f"{row.after:.1f}", source=key),
        sources.score_cell(row.untuned),
        sources.score_cell(row.tuned),
    ]
