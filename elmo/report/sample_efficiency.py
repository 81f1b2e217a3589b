"""How much training data, and how many updates, ELMo saves (the paper's section 5.4 and Figure 1), from records.

For every share of the training file the scores with and without ELMo, over seeds; and, seed by seed, how many updates
the run with ELMo needs to be as good on dev as the baseline's best ever gets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elmo.charts.line import Line, line_chart
from elmo.report.run_groups import TITLES, Record, Score, grouped, score, settings_key, share_of, title_of

# what runs of one line may differ in
VARIED = ("data.fraction", "train.epochs", "train.patience", "train.validate_after", "optim.halve_after")
PAPER = "SRL: the baseline is best after 486 epochs; with ELMo it is passed after 10, 98 percent fewer updates."


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The update at which each is as good on dev as the baseline gets; means over the seeds whose baseline learned."""

    baseline: float
    elmo: float | None  # over the seeds that got there; None: none did
    reached: int  # seeds
    sooner: int  # seeds that got there after fewer updates than the baseline
    seeds: int

    @property
    def fewer(self) -> float | None:
        """Percent of the baseline's updates that are saved; None where a seed never got there."""
        return 100 * (1 - self.elmo / self.baseline) if self.elmo is not None and self.reached == self.seeds else None


@dataclass(frozen=True, kw_only=True)
class Share:
    """One share of the training file."""

    share: float
    examples: int
    baseline: Score | None
    elmo: Score | None
    reach: Reach | None


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """One task's two lines."""

    task: str
    metric: str
    split: str
    shares: tuple[Share, ...]

    @property
    def title(self) -> str:
        return title_of(self.task)

    @property
    def largest(self) -> Share | None:
        """The largest share whose updates can be compared."""
        return next((share for share in reversed(self.shares) if share.reach is not None), None)


def sample_efficiency(records: Sequence[Record], *, least_shares: int = 2) -> list[Efficiency]:
    """Every task trained on so many shares of its file, with and without ELMo, in the paper's order."""
    found = []
    for task in sorted({r["task"] for r in records}, key=lambda t: (t not in TITLES, [*TITLES, t].index(t))):
        mine = [r for r in records if r["task"] == task]
        lines = grouped([r for r in mine if r["elmo"] is not None], leaving=VARIED)
        without = grouped([r for r in mine if r["elmo"] is None], leaving=VARIED)
        sets = [(runs, without.get(settings_key(runs[0], leaving=(*VARIED, "elmo")), [])) for runs in lines.values()]
        whole = [_efficiency(task, runs, base) for runs, base in sets if base]
        whole = [one for one in whole if _worth(one)[0] >= least_shares]
        if whole:
            found.append(max(whole, key=_worth))
    return found


def _worth(one: Efficiency) -> tuple[int, int]:
    both = [s for s in one.shares if s.baseline is not None and s.elmo is not None]
    return len(both), sum(len(s.baseline.values) + len(s.elmo.values) for s in both if s.baseline and s.elmo)


def _efficiency(task: str, elmo: Sequence[Record], baseline: Sequence[Record]) -> Efficiency:
    runs: dict[float, tuple[list[Record], list[Record]]] = defaultdict(lambda: ([], []))
    for side, records in enumerate((baseline, elmo)):
        for record in records:
            seeds = [r["seed"] for r in runs[share_of(record)][side]]
            if record["seed"] not in seeds:
                runs[share_of(record)][side].append(record)
    every = [r for pair in runs.values() for side in pair for r in side]
    split = "test" if all(r["test"] is not None for r in every) else "dev"
    shares = tuple(
        Share(
            share=share,
            examples=int([*without, *with_][0]["data"]["train"]["examples"]),
            baseline=score(without, split=split) if without else None,
            elmo=score(with_, split=split) if with_ else None,
            reach=_reach(without, with_),
        )
        for share, (without, with_) in sorted(runs.items())
    )
    return Efficiency(task=task, metric=every[0]["metric"], split=split, shares=shares)


def _reach(baseline: Sequence[Record], elmo: Sequence[Record]) -> Reach | None:
    # a baseline that never got anything right is reached by doing nothing: it says nothing
    pairs = [(b, e) for b in baseline for e in elmo if b["seed"] == e["seed"] and b["best"]["score"] > 0]
    if not pairs:
        return None
    found = [update_reaching(e, float(b["best"]["score"])) for b, e in pairs]
    there = [update for update in found if update is not None]
    return Reach(
        baseline=sum(b["best"]["update"] for b, _ in pairs) / len(pairs),
        elmo=sum(there) / len(there) if there else None,
        reached=len(there),
        sooner=sum(u is not None and u < b["best"]["update"] for (b, _), u in zip(pairs, found, strict=True)),
        seeds=len(pairs),
    )


def update_reaching(record: Record, wanted: float) -> int | None:
    """The first update after which the score on dev was at least `wanted`; None: never."""
    metric = record["metric"]
    return next((int(p["update"]) for p in record["curve"] if float(p["dev"][metric]) >= wanted), None)


def as_svg(one: Efficiency, name: str = "") -> str:
    """Both lines over the share of the data, on a logarithmic axis, with their deviations."""
    lines = []
    for title, side in (("baseline", "baseline"), ("with ELMo", "elmo")):
        scores: list[tuple[float, Score | None]] = [(100 * s.share, getattr(s, side)) for s in one.shares]
        lines.append(Line(label=title, points=[(x, s.mean, s.deviation) for x, s in scores if s is not None]))
    return line_chart(
        name or re.sub(r"[^a-z0-9]+", "-", f"efficiency-{one.task}".lower()),
        lines,
        title=f"{one.title}: {one.metric} on {one.split} by share of the training data",
        x_label="percent of the training data",
        y_label=f"{one.metric} ({one.split})",
        log_x=True,
        x_unit="%",
    )


HEAD = (
    "share", "examples", "baseline", "with ELMo", "gain", "baseline best at update", "reached with ELMo at", "fewer",
)  # fmt: skip


def cells(share: Share) -> tuple[str, ...]:
    """One line of the table, as HEAD names it."""
    gain = share.elmo.mean - share.baseline.mean if share.baseline and share.elmo else None
    reach = share.reach
    return (
        f"{100 * share.share:g}%",
        f"{share.examples:,}",
        "-" if share.baseline is None else str(share.baseline),
        "-" if share.elmo is None else str(share.elmo),
        "-" if gain is None else f"{gain:+.2f}",
        *(("-", "-", "-") if reach is None else reach_cells(reach)),
    )


def reach_cells(reach: Reach) -> tuple[str, str, str]:
    """The baseline's update, that with ELMo, and the percent saved."""
    some = "" if reach.reached == reach.seeds else f" ({reach.reached} of {reach.seeds} seeds)"
    reached = "not reached" if reach.elmo is None else f"{reach.elmo:,.0f}{some}"
    return f"{reach.baseline:,.0f}", reached, "-" if reach.fewer is None else f"{reach.fewer:.0f}%"


def as_text(one: Efficiency) -> str:
    """The table, aligned."""
    lines = [HEAD, *map(cells, one.shares)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([f"{one.title}: {one.metric} on {one.split}", *text]) + "\n"


def as_markdown(one: Efficiency) -> str:
    """A GitHub table."""
    lines = [HEAD, ("---:",) * len(HEAD), *map(cells, one.shares)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"**{one.title}: {one.metric} on {one.split}**\n\n{table}\n"


def as_values(one: Efficiency) -> dict[str, Any]:
    """For JSON."""
    return asdict(one)
