"""The paper's findings, each held against the records: as there, not as there, not told apart, or nothing to tell by.

A difference between runs counts where chance makes one as large less than once in twenty times, judged by the deviation
over seeds (elmo/report/significance.py); of a probe, where it is larger than twice its standard error.

A finding that does not hold here is marked open until a note explains it (`elmo report --notes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elmo.report.collect import Found
from elmo.report.layer_tables import Row
from elmo.report.mix_weights import MixRow
from elmo.report.page import Cell, Part, Section, Table
from elmo.report.probe_tables import name_of, of_kind
from elmo.report.run_groups import Score, title_of
from elmo.report.sample_efficiency import Efficiency
from elmo.report.significance import compare, noise_of, pooled, told_apart

NEAR_UNIFORM = 0.15  # how far a weight may lie from the plain average and still be called near it
CLEARLY = 0.02  # how much more than the next a weight must be to be called the largest
HOW_TOLD = (
    "A difference between runs counts where chance makes one as large less than once in twenty times (Student's t, by "
    "the deviation over seeds of a task's runs), one between a probe's layers where it is twice its standard error."
)
_VERDICTS = {  # holds -> mood, mark, words
    1: ("good", "✓", "as in the paper"),
    0: ("even", "≈", "only in part as there, or not told apart from chance"),
    -1: ("bad", "✗", "otherwise than in the paper"),
    None: ("none", "–", "no records"),
}


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One finding. `holds`: 1 as in the paper, 0 not told apart, -1 otherwise; None: no records."""

    key: str
    claim: str
    paper: str
    section: str  # of the page, that has the figures
    here: str = "-"
    holds: int | None = None
    cases: tuple[int, int] = (0, 0)  # tasks, models, shares: how many are as in the paper, of how many compared


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the findings are held against."""

    tasks: Sequence[Mapping[str, Any]]  # Table 1 as plain values
    layers: Sequence[Row]
    places: Sequence[Row]
    efficiency: Sequence[Efficiency]
    updates: Sequence[Efficiency]  # of tasks with one share too
    mixes: Sequence[MixRow]
    probes: Sequence[Found]


def patterns(measured: Measured) -> list[Pattern]:
    """All findings, in the order of the paper."""
    return [
        _gains(measured.tasks),
        _layers(measured.layers, "all-beat-last", "All layers beat the last alone", "+0.4 to +0.7 in Table 2", 3, 1),
        _layers(measured.layers, "last-beats-none", "The last layer alone beats the baseline", "+1.0 to +3.9", 1, 0),
        _layers(measured.layers, "learned-beats-average", "λ = 0.001 beats λ = 1", "+0.2 in Table 2", 3, 2),
        _places(measured.places),
        _senses(measured.probes),
        _tags(measured.probes),
        _shares(measured.efficiency),
        _updates(measured.updates),
        _input_mixes([row for row in measured.mixes if row.place == "input"]),
        _output_mixes([row for row in measured.mixes if row.place == "output"]),
    ]


def patterns_section(found: Sequence[Pattern], notes: Mapping[str, str]) -> Section:
    """The findings as a table, each leading to its figures; what is open is said."""
    rows: list[list[Cell | str]] = []
    for one in found:
        mood, mark, words = _VERDICTS[one.holds]
        as_there, count = one.cases
        if one.holds == 0:
            words = f"as there in {as_there} of {count}, the rest not" if as_there else "not"
            words += " told apart from chance"
        elif one.holds == -1 and count > 1:
            words += f", {as_there} of {count} as there"
        verdict = f"{mark} {words}"
        why = notes.get(one.key, "") if one.holds in (-1, 0) else ""
        verdict += "; open" if one.holds in (-1, 0) and not why else ""
        claim, said = Cell(text=one.claim, source=one.section), Cell(text=verdict, mood=mood, why=why)
        rows.append([claim, said, one.paper, one.here])
    head = ("Finding", "Verdict", "Paper", "Here")
    caption = "The paper's findings, held against the records"
    parts: list[Part] = [Table(caption=caption, head=head, rows=rows, notes=[HOW_TOLD])]
    return Section(key="findings", title="Findings", parts=parts)


def tally(found: Sequence[Pattern]) -> list[Cell]:
    """How many findings came out which way; what did not occur is left out."""
    counted = [(sum(one.holds == holds for one in found), *verdict) for holds, verdict in _VERDICTS.items()]
    return [Cell(text=f"{mark} {count} {words}", mood=mood) for count, mood, mark, words in counted if count]


def _seeds(*scores: Score | None) -> str:
    return " (one seed)" if any(score is not None and score.deviation is None for score in scores) else ""


def _held(verdicts: Sequence[int | None]) -> dict[str, Any]:
    """A finding's `holds`, the worst of its cases, and its `cases`."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return {"holds": min(known) if known else None, "cases": (known.count(1), len(known))}


def _gains(rows: Sequence[Mapping[str, Any]]) -> Pattern:
    both = [row for row in rows if row["absolute"] is not None and row["same_data"]]
    seeds = [(len(row["baseline"]["seeds"]), len(row["elmo"]["seeds"])) for row in both]
    own = [
        pooled((row[side]["deviation"], count) for side, count in zip(("baseline", "elmo"), counts, strict=True))
        for row, counts in zip(both, seeds, strict=True)
    ]
    # a task with single seeds is held to the largest deviation of the others
    usual = max((noise for noise in own if noise is not None), key=lambda noise: noise.deviation, default=None)
    verdicts = [told_apart(row["absolute"], n, noise or usual) for row, n, noise in zip(both, seeds, own, strict=True)]
    here = ", ".join(
        f"{row['paper']['title']} {row['absolute']:+.2f}" + (" (one seed)" if 1 in counts else "")
        for row, counts in zip(both, seeds, strict=True)
    )
    paper = "all six, by 0.7 to 4.7 points"
    claim = "ELMo improves every task"
    held = _held(verdicts)
    return Pattern(key="elmo-helps", claim=claim, paper=paper, section="six-tasks", here=here or "-", **held)


def _layers(rows: Sequence[Row], key: str, claim: str, paper: str, better: int, worse: int) -> Pattern:
    pairs = [(row.title, row.ours[better], row.ours[worse]) for row in rows]
    here = [f"{title} {a.mean - b.mean:+.2f}{_seeds(a, b)}" for title, a, b in pairs if a is not None and b is not None]
    held = _held([compare(row.ours[better], row.ours[worse], noise_of(row.ours)) for row in rows])
    return Pattern(key=key, claim=claim, paper=paper, section="layers", here=", ".join(here) or "-", **held)


def _places(rows: Sequence[Row]) -> Pattern:
    verdicts, here = [], []
    for row in rows:
        filled = {name: s for name, s in zip(("input", "both", "output"), row.ours, strict=True) if s is not None}
        best = max(filled, key=lambda name: filled[name].mean)
        here.append(f"{row.title} {best}{_seeds(*filled.values())}")
        if row.paper is not None and len(filled) == 3:
            wanted = ("input", "both", "output")[row.paper.index(max(row.paper))]
            noise = noise_of(row.ours)
            others = [compare(filled[wanted], s, noise) for name, s in filled.items() if name != wanted]
            verdicts.append(min(verdict for verdict in others if verdict is not None))
    paper = "both for SQuAD and SNLI, input for SRL"
    claim = "The best place depends on the task"
    here_all = ", ".join(here) or "-"
    held = _held(verdicts)
    return Pattern(key="places", claim=claim, paper=paper, section="places", here=here_all, **held)


def _trained(probes: Sequence[Found], kind: str) -> list[Found]:
    """Records of trained biLMs with two layers or more; only a biLM's record says whether it is trained."""
    return [
        f
        for f in of_kind(probes, kind)
        if f.values["vectors"].get("trained") and {"1", "2"} <= f.values["scores"]["views"].keys()
    ]


def _senses(probes: Sequence[Found]) -> Pattern:
    found = _trained(probes, "wsd")
    gaps = [_gap(f, lambda view: float(view["plain"]["ALL"]), "targets") for f in found]
    paper = "layer 1 67.4, layer 2 69.0 (F1)"
    return _gap_pattern("senses-upper", "Senses: the upper layer is better", paper, gaps, upper=True)


def _tags(probes: Sequence[Found]) -> Pattern:
    found = _trained(probes, "pos")
    gaps = [_gap(f, lambda view: float(view["test"]), "test_words") for f in found]
    paper = "layer 1 97.3, layer 2 96.8 (accuracy)"
    return _gap_pattern("tags-lower", "Parts of speech: the lower layer is better", paper, gaps, upper=False)


def _gap(found: Found, figure: Callable[[Mapping[str, Any]], float], counted: str) -> tuple[str, float, float, float]:
    """Whose vectors, the first layer's figure, the top layer's, and what their difference must exceed.

    That is twice its standard error over what was counted, as if the layers had been read on different words.
    """
    views = found.values["scores"]["views"]
    low, high = figure(views["1"]), figure(views[str(max(int(view) for view in views if view.isdigit()))])
    count = found.values.get("counts", {}).get(counted)
    return name_of(found.values["vectors"]), low, high, 2 * math.sqrt(2 * low * (100 - low) / count) if count else 0.0


def _gap_pattern(
    key: str, claim: str, paper: str, gaps: Sequence[tuple[str, float, float, float]], *, upper: bool
) -> Pattern:
    here = "; ".join(f"{name}: layer 1 {low:.1f}, top {high:.1f}" for name, low, high, _ in gaps)
    verdicts = [0 if abs(high - low) <= noise else 1 if (high > low) == upper else -1 for _, low, high, noise in gaps]
    section = "senses" if upper else "tags"
    held = _held(verdicts)
    return Pattern(key=key, claim=claim, paper=paper, section=section, here=here or "-", **held)


def _shares(found: Sequence[Efficiency]) -> Pattern:
    verdicts, here = [], []
    for one in found:
        both = [s for s in one.shares if s.baseline is not None and s.elmo is not None]
        verdicts += [compare(s.elmo, s.baseline, noise_of((s.elmo, s.baseline))) for s in both]
        gains = ", ".join(
            f"{100 * s.share:g}% {s.elmo.mean - s.baseline.mean:+.1f}{_seeds(s.elmo, s.baseline)}"
            for s in both
            if s.elmo and s.baseline
        )
        here.append(f"{one.title}: {gains}")
    claim = "ELMo is better with every share of the data"
    paper = "SNLI and SRL, 0.1 to 100 percent; most with little data"
    here_all = "; ".join(here) or "-"
    held = _held(verdicts)
    return Pattern(key="shares", claim=claim, paper=paper, section="efficiency", here=here_all, **held)


def _updates(found: Sequence[Efficiency]) -> Pattern:
    verdicts, here = [], []
    for one in found:
        reach = one.largest.reach if one.largest else None
        if reach is not None:
            level = reach.sooner or reach.fewer == 0
            verdicts.append(1 if reach.sooner == reach.seeds else 0 if level else -1)
            reached = f"{reach.reached} of {reach.seeds} seeds reach it"
            said = reached if reach.fewer is None else f"{reach.fewer:.0f}% fewer"
            some = "" if reach.sooner in (0, reach.seeds) else f" ({reach.sooner} of {reach.seeds} seeds sooner)"
            here.append(f"{one.title} {said}{some}")
    claim = "ELMo reaches the baseline's best in fewer updates"
    paper = "SRL: 98% fewer"
    here_all = ", ".join(here) or "-"
    held = _held(verdicts)
    return Pattern(key="updates", claim=claim, paper=paper, section="efficiency", here=here_all, **held)


def _input_mixes(rows: Sequence[MixRow]) -> Pattern:
    usual = [row for row in rows if len(row.weights) > 2]
    here = _by_task(usual, lambda row: f"{row.weights[1]:.2f}")
    verdicts = []
    for row in usual:
        ahead = row.weights[1] - max(weight for layer, weight in enumerate(row.weights) if layer != 1)
        noise = max([CLEARLY, *(d for d in row.deviations if d is not None)])
        verdicts.append(0 if abs(ahead) <= noise else 1 if ahead > 0 else -1)
    claim = "At the input, tasks favour the first biLSTM layer"
    held = _held(verdicts)
    here = f"its weight: {here}" if here else "-"
    return Pattern(key="mix-input", claim=claim, paper="all tasks", section="mixes", here=here, **held)


def _output_mixes(rows: Sequence[MixRow]) -> Pattern:
    here = _by_task(rows, lambda row: f"{min(row.weights):.2f} to {max(row.weights):.2f}")
    far = [max(abs(weight - 1 / len(row.weights)) for weight in row.weights) for row in rows]
    verdicts = [1 if distance <= NEAR_UNIFORM else -1 for distance in far]
    claim = "At the output, the weights are near uniform"
    held = _held(verdicts)
    paper = "SNLI and SQuAD"
    return Pattern(key="mix-output", claim=claim, paper=paper, section="mixes", here=here or "-", **held)


def _by_task(rows: Sequence[MixRow], said: Callable[[MixRow], str]) -> str:
    """Each task once, with what is said of its mixes: ELMo in one place, in both."""
    tasks: dict[str, list[str]] = {}
    for row in rows:
        tasks.setdefault(title_of(row.task), []).append(said(row))
    return ", ".join(f"{task} {' and '.join(found)}" for task, found in tasks.items())
