"""How much training data and how many updates ELMo saves (the paper's section 5.4 and Figure 1), from task runs.

For each share of the training file: the scores with and without ELMo over seeds, and after how many updates the run
with ELMo first reaches the baseline's best dev score, seed by seed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elmo.charts.line import Line, line_chart
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

# settings in which the runs of one curve may differ
VARIED = ("data.fraction", "train.epochs", "train.patience", "train.validate_after", "optim.halve_after")
PAPER = "SRL: the baseline is best after 486 epochs; with ELMo it is passed after 10, 98 percent fewer updates."


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The updates at which both runs reach the baseline's best dev score; means over seeds whose baseline learned."""

    baseline: float
    elmo: float | None  # mean over the seeds that reach it; None if none does
    reached: int  # number of seeds that reach it
    sooner: int  # number of seeds that reach it after fewer updates than the baseline
    seeds: int

    @property
    def fewer(self) -> float | None:
        """The percentage of the baseline's updates that is saved; None if a seed never reaches its best score."""
        return 100 * (1 - self.elmo / self.baseline) if self.elmo is not None and self.reached == self.seeds else None


@dataclass(frozen=True, kw_only=True)
class Share:
    """The scores and updates for one share of the training file."""

    share: float
    examples: int
    baseline: Score | None
    elmo: Score | None
    reach: Reach | None


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """One task: its two curves over shares of the training file."""

    task: str
    metric: str
    split: str
    shares: tuple[Share, ...]

    @property
    def title(self) -> str:
        return task_title(self.task)

    @property
    def largest(self) -> Share | None:
        """The largest share for which updates can be compared."""
        return next((share for share in reversed(self.shares) if share.reach is not None), None)


def sample_efficiency(records: Sequence[Record], *, least_shares: int = 2) -> list[Efficiency]:
    """Each task that has at least `least_shares` shares with and without ELMo, in the paper's order."""
    efficiencies = []
    for task in tasks_in_order(records):
        runs = [r for r in records if r["task"] == task]
        curves = group_runs([r for r in runs if r["elmo"] is not None], ignore=VARIED)
        baselines = group_runs([r for r in runs if r["elmo"] is None], ignore=VARIED)
        candidates = []
        for curve in curves.values():
            baseline = baselines.get(settings_key(curve[0], ignore=(*VARIED, "elmo")), [])
            if baseline:
                one = _efficiency(task, curve, baseline)
                candidates.append(((*_rank(one), _dev_mean(curve)), one))
        candidates = [(rank, one) for rank, one in candidates if rank[0] >= least_shares]
        if candidates:
            efficiencies.append(max(candidates, key=lambda candidate: candidate[0])[1])
    return efficiencies


def with_largest_share(records: Sequence[Record]) -> list[Record]:
    """The records of each task that use the largest share of its training file with and without ELMo."""
    sides: dict[tuple[str, float, str], set[bool]] = defaultdict(set)  # of runs whose other settings are equal
    for record in records:
        settings = settings_key(record, ignore=(*VARIED, "elmo"))
        sides[record["task"], data_share(record), settings].add(record["elmo"] is None)
    largest: dict[str, float] = defaultdict(float)
    for (task, share, _), found in sides.items():
        if len(found) == 2:
            largest[task] = max(largest[task], share)
    return [record for record in records if data_share(record) == largest[record["task"]]]


def _rank(efficiency: Efficiency) -> tuple[int, int]:
    """The larger, the rather a curve is shown: shares with both scores, then runs."""
    scores = [(s.baseline, s.elmo) for s in efficiency.shares if s.baseline is not None and s.elmo is not None]
    return len(scores), sum(len(baseline.values) + len(elmo.values) for baseline, elmo in scores)


def _dev_mean(curve: Sequence[Record]) -> float:
    """The mean dev score on the largest share, which decides between two editions of a biLM with as many runs."""
    largest = max(map(data_share, curve))
    return score([r for r in curve if data_share(r) == largest], split="dev").mean


def _efficiency(task: str, elmo: Sequence[Record], baseline: Sequence[Record]) -> Efficiency:
    by_share: dict[float, tuple[list[Record], list[Record]]] = defaultdict(lambda: ([], []))
    for side, records in enumerate((baseline, elmo)):
        for record in records:
            runs = by_share[data_share(record)][side]
            if record["seed"] not in [run["seed"] for run in runs]:
                runs.append(record)
    every = [run for sides in by_share.values() for runs in sides for run in runs]
    split = "test" if all(run["test"] is not None for run in every) else "dev"
    shares = tuple(
        Share(
            share=share,
            examples=int([*without, *with_][0]["data"]["train"]["examples"]),
            baseline=score(without, split=split) if without else None,
            elmo=score(with_, split=split) if with_ else None,
            reach=_reach(without, with_),
        )
        for share, (without, with_) in sorted(by_share.items())
    )
    return Efficiency(task=task, metric=metric_title(every[0]["metric"]), split=split, shares=shares)


def _reach(baseline: Sequence[Record], elmo: Sequence[Record]) -> Reach | None:
    # a baseline whose best score is 0 learned nothing, so reaching its score means nothing
    pairs = [(b, e) for b in baseline for e in elmo if b["seed"] == e["seed"] and b["best"]["score"] > 0]
    if not pairs:
        return None
    updates = [update_reaching(e, float(b["best"]["score"])) for b, e in pairs]
    reached = [update for update in updates if update is not None]
    return Reach(
        baseline=sum(b["best"]["update"] for b, _ in pairs) / len(pairs),
        elmo=sum(reached) / len(reached) if reached else None,
        reached=len(reached),
        sooner=sum(u is not None and u < b["best"]["update"] for (b, _), u in zip(pairs, updates, strict=True)),
        seeds=len(pairs),
    )


def update_reaching(record: Record, dev_score: float) -> int | None:
    """The first update after which the score on dev was at least `dev_score`; None if it never was."""
    metric = record["metric"]
    return next((int(p["update"]) for p in record["curve"] if float(p["dev"][metric]) >= dev_score), None)


def as_svg(efficiency: Efficiency, name: str = "") -> str:
    """Both curves with their deviations over the share of the training data, on a logarithmic axis."""
    curves = {"baseline": [s.baseline for s in efficiency.shares], "with ELMo": [s.elmo for s in efficiency.shares]}
    percents = [100 * s.share for s in efficiency.shares]
    lines = [
        Line(
            label=label,
            points=[(x, s.mean, s.deviation) for x, s in zip(percents, scores, strict=True) if s is not None],
        )
        for label, scores in curves.items()
    ]
    return line_chart(
        name or re.sub(r"[^a-z0-9]+", "-", f"efficiency-{efficiency.task}".lower()),
        lines,
        title=f"{efficiency.title}: {efficiency.metric} on {efficiency.split} by share of the training data",
        x_label="percent of the training data",
        y_label=f"{efficiency.metric} ({efficiency.split})",
        log_x=True,
        x_unit="%",
    )


HEAD = (
    "share", "examples", "baseline", "with ELMo", "gain", "baseline best at update", "reached with ELMo at", "fewer",
)  # fmt: skip


def cells(share: Share) -> tuple[str, ...]:
    """One line of the table, with the columns of HEAD."""
    gain = share.elmo.mean - share.baseline.mean if share.baseline and share.elmo else None
    return (
        f"{100 * share.share:g}%",
        f"{share.examples:,}",
        "-" if share.baseline is None else str(share.baseline),
        "-" if share.elmo is None else str(share.elmo),
        "-" if gain is None else f"{gain:+.2f}",
        *(("-", "-", "-") if share.reach is None else reach_cells(share.reach)),
    )


def reach_cells(reach: Reach) -> tuple[str, str, str]:
    """The baseline's update, the update with ELMo, and the percentage saved."""
    count = "" if reach.reached == reach.seeds else f" ({reach.reached} of {reach.seeds} seeds)"
    reached = "not reached" if reach.elmo is None else f"{reach.elmo:,.0f}{count}"
    return f"{reach.baseline:,.0f}", reached, "-" if reach.fewer is None else f"{reach.fewer:.0f}%"


def as_text(efficiency: Efficiency) -> str:
    """The table with aligned columns."""
    title = f"{efficiency.title}: {efficiency.metric} on {efficiency.split}"
    return "\n".join([title, *align_columns([HEAD, *map(cells, efficiency.shares)], num_left=0)]) + "\n"


def as_markdown(efficiency: Efficiency) -> str:
    """The table as Markdown."""
    table = markdown_table([HEAD, *map(cells, efficiency.shares)], num_left=0)
    return f"**{efficiency.title}: {efficiency.metric} on {efficiency.split}**\n\n{table}\n"


def as_values(efficiency: Efficiency) -> dict[str, Any]:
    """Plain values for JSON."""
    return asdict(efficiency)
