"""The paper's findings, each held against the records: as there, not as there, not told apart, or nothing to tell by.

A difference counts when it is larger than either side's deviation over seeds; of a probe, than its standard error.

A finding that does not hold here is marked open until a note explains it (`elmo report --notes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elmo.analysis.layer_tables import Row
from elmo.analysis.mix_weights import MixRow
from elmo.analysis.report.collect import Found
from elmo.analysis.report.from_probes import name_of, of_kind
from elmo.analysis.report.page import Cell, Part, Section, Table
from elmo.analysis.run_groups import Score
from elmo.analysis.sample_efficiency import Efficiency

NEAR_UNIFORM = 0.15  # how far a weight may lie from the plain average and still be called near it
CLEARLY = 0.02  # how much more than the next a weight must be to be called the largest
_VERDICTS = {  # holds -> mood, mark, words
    1: ("good", "✓", "as in the paper"),
    0: ("even", "≈", "not told apart (within the noise)"),
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
    mixes: Sequence[MixRow]
    probes: Sequence[Found]


def compare(one: Score | None, other: Score | None) -> int | None:
    """1 where `one` is better by more than either's deviation, -1 where it is worse by more, 0 between."""
    if one is None or other is None:
        return None
    noise = max(one.deviation or 0.0, other.deviation or 0.0)
    gap = one.mean - other.mean
    return 0 if abs(gap) <= noise else 1 if gap > 0 else -1


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
        _updates(measured.efficiency),
        _input_mixes([row for row in measured.mixes if row.place == "input"]),
        _output_mixes([row for row in measured.mixes if row.place == "output"]),
    ]


def patterns_section(found: Sequence[Pattern], notes: Mapping[str, str]) -> Section:
    """The findings as a table, each leading to its figures; what is open is said."""
    rows: list[list[Cell | str]] = []
    for one in found:
        mood, mark, words = _VERDICTS[one.holds]
        verdict = f"{mark} {words}"
        if one.holds in (-1, 0) and one.cases[1] > 1:
            verdict += f", {one.cases[0]} of {one.cases[1]} as there"
        why = notes.get(one.key, "") if one.holds in (-1, 0) else ""
        verdict += "; open" if one.holds in (-1, 0) and not why else ""
        claim, said = Cell(text=one.claim, source=one.section), Cell(text=verdict, mood=mood, why=why)
        rows.append([claim, said, one.paper, one.here])
    head = ("Finding", "Verdict", "Paper", "Here")
    parts: list[Part] = [Table(caption="The paper's findings, held against the records", head=head, rows=rows)]
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
    verdicts = []
    for row in both:
        noise = max(row["baseline"]["deviation"] or 0.0, row["elmo"]["deviation"] or 0.0)
        verdicts.append(0 if abs(row["absolute"]) <= noise else 1 if row["absolute"] > 0 else -1)
    here = ", ".join(
        f"{row['paper']['title']} {row['absolute']:+.2f}"
        + (" (one seed)" if row["baseline"]["deviation"] is None or row["elmo"]["deviation"] is None else "")
        for row in both
    )
    paper = "all six, by 0.7 to 4.7 points"
    claim = "ELMo improves every task"
    held = _held(verdicts)
    return Pattern(key="elmo-helps", claim=claim, paper=paper, section="six-tasks", here=here or "-", **held)


def _layers(rows: Sequence[Row], key: str, claim: str, paper: str, better: int, worse: int) -> Pattern:
    pairs = [(row.title, row.ours[better], row.ours[worse]) for row in rows]
    here = [f"{title} {a.mean - b.mean:+.2f}{_seeds(a, b)}" for title, a, b in pairs if a is not None and b is not None]
    held = _held([compare(a, b) for _, a, b in pairs])
    return Pattern(key=key, claim=claim, paper=paper, section="layers", here=", ".join(here) or "-", **held)


def _places(rows: Sequence[Row]) -> Pattern:
    verdicts, here = [], []
    for row in rows:
        filled = {name: s for name, s in zip(("input", "both", "output"), row.ours, strict=True) if s is not None}
        best = max(filled, key=lambda name: filled[name].mean)
        here.append(f"{row.title} {best}{_seeds(*filled.values())}")
        if row.paper is not None and len(filled) == 3:
            wanted = ("input", "both", "output")[row.paper.index(max(row.paper))]
            others = [compare(filled[wanted], s) for name, s in filled.items() if name != wanted]
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
    """Whose vectors, the first layer's figure, the top layer's, and a figure's standard error over what was counted."""
    views = found.values["scores"]["views"]
    low, high = figure(views["1"]), figure(views[str(max(int(view) for view in views if view.isdigit()))])
    count = found.values.get("counts", {}).get(counted)
    return name_of(found.values["vectors"]), low, high, math.sqrt(low * (100 - low) / count) if count else 0.0


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
        verdicts += [compare(s.elmo, s.baseline) for s in both]
        gains = ", ".join(
            f"{100 * s.share:g}% {s.elmo.mean - s.baseline.mean:+.1f}" for s in both if s.elmo and s.baseline
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
        reach = next((s.reach for s in reversed(one.shares) if s.reach is not None), None)
        if reach is not None:
            fewer = reach.fewer if reach.reached == reach.seeds else None
            verdicts.append(-1 if fewer is None or fewer < 0 else 1 if fewer > 0 else 0)
            said = f"{fewer:.0f}% fewer" if fewer is not None else f"{reach.reached} of {reach.seeds} seeds reach it"
            here.append(f"{one.title} {said}")
    claim = "ELMo reaches the baseline's best in fewer updates"
    paper = "SRL: 98% fewer"
    here_all = ", ".join(here) or "-"
    held = _held(verdicts)
    return Pattern(key="updates", claim=claim, paper=paper, section="efficiency", here=here_all, **held)


def _input_mixes(rows: Sequence[MixRow]) -> Pattern:
    usual = [row for row in rows if len(row.weights) > 2]
    here = ", ".join(f"{row.title} {' '.join(f'{w:.2f}' for w in row.weights)}" for row in usual)
    verdicts = []
    for row in usual:
        ahead = row.weights[1] - max(weight for layer, weight in enumerate(row.weights) if layer != 1)
        noise = max([CLEARLY, *(d for d in row.deviations if d is not None)])
        verdicts.append(0 if abs(ahead) <= noise else 1 if ahead > 0 else -1)
    claim = "At the input, tasks favour the first biLSTM layer"
    held = _held(verdicts)
    return Pattern(key="mix-input", claim=claim, paper="all tasks", section="mixes", here=here or "-", **held)


def _output_mixes(rows: Sequence[MixRow]) -> Pattern:
    here = ", ".join(f"{row.title} {' '.join(f'{w:.2f}' for w in row.weights)}" for row in rows)
    far = [max(abs(weight - 1 / len(row.weights)) for weight in row.weights) for row in rows]
    verdicts = [1 if distance <= NEAR_UNIFORM else -1 for distance in far]
    claim = "At the output, the weights are near uniform"
    held = _held(verdicts)
    paper = "SNLI and SQuAD"
    return Pattern(key="mix-output", claim=claim, paper=paper, section="mixes", here=here or "-", **held)
