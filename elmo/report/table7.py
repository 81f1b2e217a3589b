"""The paper's Table 7 from task runs: the dev perplexity of a biLM before and after fine-tuning on a task's text.

Next to it is what fine-tuning does to the task: dev scores of runs that differ only in the biLM, which is the
fine-tuned one or the one that it was made from. If a task has several fine-tuned sets of runs, the one with the most
seeds counts, then the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elmo.report.run_groups import (
    Record,
    Score,
    data_share,
    group_runs,
    score,
    settings_key,
    task_title,
    tasks_in_order,
)

# Peters et al. 2018, supplemental material, Table 7: (task, part of its text; "" is all of it) -> before, after.
# Compared with a second transcription of the supplement, not with the supplement itself.
PAPER = {
    ("squad", "contexts"): (99.1, 43.5),
    ("squad", "questions"): (158.2, 52.0),
    ("snli", ""): (72.1, 16.8),
    ("ner", ""): (103.2, 46.3),
    ("sst", ""): (131.5, 78.6),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One text: the paper's perplexities if it has them, ours, and dev scores of the task with either biLM."""

    task: str
    part: str  # "" is all text of the task
    metric: str
    paper: tuple[float, float] | None
    before: float  # perplexity, LSTM state reset at each sentence, mean of both directions
    after: float
    untuned: Score | None
    tuned: Score

    @property
    def title(self) -> str:
        return f"{task_title(self.task)} {self.part}".rstrip()


def make_rows(records: Sequence[Record]) -> list[Row]:
    """The rows of all tasks that have runs with a biLM that was fine-tuned on their text, in the paper's order."""
    rows: list[Row] = []
    for task in tasks_in_order(records):
        runs = [r for r in records if r["task"] == task and r["elmo"] is not None and data_share(r) == 1.0]
        tuned = [r for r in runs if (r["elmo"].get("finetuning") or {}).get("task") == task]
        if tuned:
            rows += _task_rows(_choose(tuned), runs)
    return rows


def _choose(tuned: Sequence[Record]) -> list[Record]:
    groups = group_runs(tuned).values()
    return max(groups, key=lambda group: (len(group), score(group, split="dev").mean))


def _task_rows(tuned: Sequence[Record], runs: Sequence[Record]) -> list[Row]:
    first = tuned[0]
    task, finetuning = first["task"], first["elmo"]["finetuning"]
    initial, key = finetuning["initial"]["sha256"], settings_key(first, ignore=("elmo.model",))
    untuned = [
        r for r in runs if r["elmo"]["sha256"] == initial and settings_key(r, ignore=("elmo.model",)) == key
    ]  # with the biLM from which the tuned one was made
    parts = [part for name, part in PAPER if name == task] or [""]
    before, after = (finetuning["perplexity"][side] for side in ("before", "after"))
    rows = []
    for part in parts:
        sides = [side["by_part"][part] if part else side for side in (before, after)]
        rows.append(
            Row(
                task=task,
                part=part,
                metric=first["metric"],
                paper=PAPER.get((task, part)),
                before=float(sides[0]["reset"]["mean"]),
                after=float(sides[1]["reset"]["mean"]),
                untuned=score(_seeds_once(untuned), split="dev") if untuned else None,
                tuned=score(tuned, split="dev"),
            )
        )
    return rows


def _seeds_once(records: Sequence[Record]) -> list[Record]:
    return next(iter(group_runs(records).values()))
