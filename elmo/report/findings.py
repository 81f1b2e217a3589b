"""Compares each finding of the paper with the results: it agrees, differs, or shows no significant difference.

A difference between runs is significant at the 5 percent level of Student's t test (elmo/report/significance.py); a
difference between a probe's layers is significant if it is larger than twice its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elmo.report import layer_tables, table1
from elmo.report.collect import RecordFile
from elmo.report.mix_weights import MixRow
from elmo.report.probe_tables import ScoreOf, select_probes
from elmo.report.results import Results
from elmo.report.run_groups import Score, task_title
from elmo.report.sample_efficiency import Efficiency
from elmo.report.significance import compare, pool_deviations, pool_scores, significant_sign
from elmo.report.sources import vectors_name

NEAR_UNIFORM = 0.15  # largest distance of a weight from the plain average that counts as near uniform
CLEARLY = 0.02  # least difference by which one weight counts as larger than another
_PLACES = ("input", "both", "output")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding of the paper and how it comes out here."""

    key: str
    claim: str
    paper: str  # what the paper measured
    section: str  # key of the section that has the numbers
    here: str = "-"  # what we measured
    holds: int | None = None  # 1 agrees, 0 no significant difference, -1 differs; None without records
    cases: tuple[int, int] = (0, 0)  # tasks, models or shares: how many agree, of how many were compared


def check_findings(results: Results) -> list[Finding]:
    """All findings, in the order of the paper."""
    layers = results.layers
    return [
        _gains(results.tasks),
        _layers(layers, "all-beat-last", "All layers beat the last alone", "+0.4 to +0.7 in Table 2", 3, 1),
        _layers(layers, "last-beats-none", "The last layer alone beats the baseline", "+1.0 to +3.9", 1, 0),
        _layers(layers, "learned-beats-average", "λ = 0.001 beats λ = 1", "+0.2 in Table 2", 3, 2),
        _places(results.places),
        _senses(results.probes),
        _tags(results.probes),
        _shares(results.efficiency),
        _updates(results.updates),
        _input_mixes([row for row in results.mixes if row.place == "input"]),
        _output_mixes([row for row in results.mixes if row.place == "output"]),
    ]


def _finding(key: str, claim: str, paper: str, section: str, here: str, verdicts: Sequence[int | None]) -> Finding:
    """A finding from the verdicts of its cases: it holds as well as the worst of them; None is a missing case."""
    known = [verdict for verdict in verdicts if verdict is not None]
    holds, cases = min(known) if known else None, (known.count(1), len(known))
    return Finding(key=key, claim=claim, paper=paper, section=section, here=here or "-", holds=holds, cases=cases)


def _one_seed(*scores: Score | None) -> str:
    return " (one seed)" if any(score is not None and score.deviation is None for score in scores) else ""


def _gains(rows: Sequence[table1.Row]) -> Finding:
    gains = [
        (row.paper.title, row.absolute, row.baseline, row.elmo)
        for row in rows
        if row.absolute is not None and row.baseline is not None and row.elmo is not None and row.same_data
    ]
    pooled = [
        pool_deviations((entry.deviation, len(entry.seeds)) for entry in (baseline, elmo))
        for _, _, baseline, elmo in gains
    ]
    # a task with single seeds is tested with the largest deviation of the other tasks
    largest = max((one for one in pooled if one is not None), key=lambda one: one.deviation, default=None)
    verdicts = [
        significant_sign(gain, (len(baseline.seeds), len(elmo.seeds)), one or largest)
        for (_, gain, baseline, elmo), one in zip(gains, pooled, strict=True)
    ]
    here = ", ".join(
        f"{title} {gain:+.2f}" + (" (one seed)" if 1 in (len(baseline.seeds), len(elmo.seeds)) else "")
        for title, gain, baseline, elmo in gains
    )
    paper = "all six, by 0.7 to 4.7 points"
    return _finding("elmo-helps", "ELMo improves every task", paper, "six-tasks", here, verdicts)


def _layers(rows: Sequence[layer_tables.Row], key: str, claim: str, paper: str, better: int, worse: int) -> Finding:
    """That one column of Table 2 is better than another."""
    pairs = [(row.title, row.ours[better], row.ours[worse]) for row in rows]
    here = ", ".join(
        f"{title} {a.mean - b.mean:+.2f}{_one_seed(a, b)}" for title, a, b in pairs if a is not None and b is not None
    )
    verdicts = [compare(row.ours[better], row.ours[worse], pool_scores(row.ours)) for row in rows]
    return _finding(key, claim, paper, "layers", here, verdicts)


def _places(rows: Sequence[layer_tables.Row]) -> Finding:
    verdicts: list[int | None] = []
    here = []
    for row in rows:
        scores = {place: score for place, score in zip(_PLACES, row.ours, strict=True) if score is not None}
        best = max(scores, key=lambda place: scores[place].mean)
        here.append(f"{row.title} {best}{_one_seed(*scores.values())}")
        if row.paper is not None and len(scores) == len(_PLACES):
            papers_best = _PLACES[row.paper.index(max(row.paper))]
            pooled = pool_scores(row.ours)
            others = [compare(scores[papers_best], s, pooled) for place, s in scores.items() if place != papers_best]
            verdicts.append(min(verdict for verdict in others if verdict is not None))
    paper = "both for SQuAD and SNLI, input for SRL"
    return _finding("places", "The best place depends on the task", paper, "places", ", ".join(here), verdicts)


def _senses(probes: Sequence[RecordFile]) -> Finding:
    gaps = [_gap(probe, lambda view: float(view["plain"]["ALL"]), "targets") for probe in _trained(probes, "wsd")]
    paper = "layer 1 67.4, layer 2 69.0 (F1)"
    claim = "Senses: the upper layer is better"
    return _finding("senses-upper", claim, paper, "senses", _gaps_text(gaps), [gap.sign for gap in gaps])


def _tags(probes: Sequence[RecordFile]) -> Finding:
    gaps = [_gap(probe, lambda view: float(view["test"]), "test_words") for probe in _trained(probes, "pos")]
    paper = "layer 1 97.3, layer 2 96.8 (accuracy)"
    claim = "Parts of speech: the lower layer is better"
    return _finding("tags-lower", claim, paper, "tags", _gaps_text(gaps), [-gap.sign for gap in gaps])


def _trained(probes: Sequence[RecordFile], name: str) -> list[RecordFile]:
    """Records of trained biLMs with two or more layers; only the record of a biLM says whether it is trained."""
    return [
        probe
        for probe in select_probes(probes, name)
        if probe.values["vectors"].get("trained") and {"1", "2"} <= probe.values["scores"]["views"].keys()
    ]


@dataclass(frozen=True, kw_only=True)
class _Gap:
    """The scores of a model's first and top layer."""

    model: str
    first: float
    top: float
    threshold: float  # a larger difference is significant

    @property
    def sign(self) -> int:
        """1 if the top layer is significantly better, -1 if the first layer is, 0 otherwise."""
        difference = self.top - self.first
        return 0 if abs(difference) <= self.threshold else 1 if difference > 0 else -1


def _gap(probe: RecordFile, score_of: ScoreOf, count_name: str) -> _Gap:
    """The gap of one record; `count_name` is its count of scored words.

    The threshold is twice the standard error of the difference, as if the layers were scored on different words.
    """
    views = probe.values["scores"]["views"]
    first, top = score_of(views["1"]), score_of(views[str(max(int(view) for view in views if view.isdigit()))])
    count = probe.values.get("counts", {}).get(count_name)
    threshold = 2 * math.sqrt(2 * first * (100 - first) / count) if count else 0.0
    return _Gap(model=vectors_name(probe.values["vectors"]), first=first, top=top, threshold=threshold)


def _gaps_text(gaps: Sequence[_Gap]) -> str:
    return "; ".join(f"{gap.model}: layer 1 {gap.first:.1f}, top {gap.top:.1f}" for gap in gaps)


def _shares(efficiencies: Sequence[Efficiency]) -> Finding:
    verdicts: list[int | None] = []
    here = []
    for efficiency in efficiencies:
        pairs = [(s.share, s.elmo, s.baseline) for s in efficiency.shares if s.elmo and s.baseline]
        verdicts += [compare(elmo, baseline, pool_scores((elmo, baseline))) for _, elmo, baseline in pairs]
        gains = ", ".join(
            f"{100 * share:g}% {elmo.mean - baseline.mean:+.1f}{_one_seed(elmo, baseline)}"
            for share, elmo, baseline in pairs
        )
        here.append(f"{efficiency.title}: {gains}")
    claim = "ELMo is better with every share of the data"
    paper = "SNLI and SRL, 0.1 to 100 percent; most with little data"
    return _finding("shares", claim, paper, "efficiency", "; ".join(here), verdicts)


def _updates(efficiencies: Sequence[Efficiency]) -> Finding:
    verdicts, here = [], []
    for efficiency in efficiencies:
        reach = efficiency.largest.reach if efficiency.largest else None
        if reach is not None:
            is_level = reach.sooner or reach.fewer == 0
            verdicts.append(1 if reach.sooner == reach.seeds else 0 if is_level else -1)
            reached = f"{reach.reached} of {reach.seeds} seeds reach it"
            text = reached if reach.fewer is None else f"{reach.fewer:.0f}% fewer"
            sooner = "" if reach.sooner in (0, reach.seeds) else f" ({reach.sooner} of {reach.seeds} seeds sooner)"
            here.append(f"{efficiency.title} {text}{sooner}")
    claim = "ELMo reaches the baseline's best in fewer updates"
    return _finding("updates", claim, "SRL: 98% fewer", "efficiency", ", ".join(here), verdicts)


def _input_mixes(rows: Sequence[MixRow]) -> Finding:
    rows = [row for row in rows if len(row.weights) > 2]
    verdicts = []
    for row in rows:
        lead = row.weights[1] - max(weight for layer, weight in enumerate(row.weights) if layer != 1)
        threshold = max([CLEARLY, *(deviation for deviation in row.deviations if deviation is not None)])
        verdicts.append(0 if abs(lead) <= threshold else 1 if lead > 0 else -1)
    weights = _by_task(rows, lambda row: f"{row.weights[1]:.2f}")
    here = f"its weight: {weights}" if weights else ""
    claim = "At the input, tasks favour the first biLSTM layer"
    return _finding("mix-input", claim, "all tasks", "mixes", here, verdicts)


def _output_mixes(rows: Sequence[MixRow]) -> Finding:
    distances = [max(abs(weight - 1 / len(row.weights)) for weight in row.weights) for row in rows]
    verdicts = [1 if distance <= NEAR_UNIFORM else -1 for distance in distances]
    here = _by_task(rows, lambda row: f"{min(row.weights):.2f} to {max(row.weights):.2f}")
    return _finding(
        "mix-output", "At the output, the weights are near uniform", "SNLI and SQuAD", "mixes", here, verdicts
    )


def _by_task(rows: Sequence[MixRow], text_of: Callable[[MixRow], str]) -> str:
    """Each task once, with the texts of all its mixes: of the model with ELMo in one place, and in both places."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(task_title(row.task), []).append(text_of(row))
    return ", ".join(f"{task} {' and '.join(mixes)}" for task, mixes in texts.items())
