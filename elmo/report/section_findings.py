"""The first section of the report: the paper's findings, each with a verdict from our results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elmo.report.findings import Finding
from elmo.report.page import Cell, Section, Table

_METHOD = (
    "A difference between runs is significant at the 5 percent level of Student's t test, with the deviation over "
    "seeds pooled over the runs in the same row of its table; a difference between a probe's layers is significant if "
    "it is larger than twice its standard error. ELMo needs fewer updates if each of its seeds reaches the best dev "
    "score of the baseline sooner than the baseline does. A task favours the first biLSTM layer if its mean weight is "
    "above every other one by more than 0.02 and by more than the deviation over seeds. Weights are near uniform if "
    "none is further than 0.15 from the mean."
)
_VERDICTS = {  # Finding.holds -> colour, sign, and the words of the tally for one finding and for several
    1: ("good", "✓", "agrees with the paper", "agree with the paper"),
    0: (
        "even",
        "≈",
        "agrees in part, or shows no significant difference",
        "agree in part, or show no significant difference",
    ),
    -1: ("bad", "✗", "differs from the paper", "differ from the paper"),
    None: ("none", "–", "has no records", "have no records"),
}


def findings_section(findings: Sequence[Finding], notes: Mapping[str, str]) -> Section:
    """The findings as a table, each linked to its numbers; `notes` explain by key what does not agree.

    A finding that does not agree and has no note is marked open.
    """
    rows: list[list[Cell | str]] = []
    for finding in findings:
        verdict, sign, *_ = _VERDICTS[finding.holds]
        text, note = f"{sign} {_verdict_text(finding)}", ""
        if finding.holds in (-1, 0):
            note = notes.get(finding.key, "")
            text += "" if note else "; open"
        claim = Cell(text=finding.claim, source=finding.section)
        rows.append([claim, Cell(text=text, verdict=verdict, note=note), finding.paper, finding.here])
    table = Table(
        caption="The paper's findings and our results",
        head=("Finding", "Verdict", "Paper", "Here"),
        rows=rows,
        notes=[_METHOD],
    )
    return Section(key="findings", title="Findings", parts=[table])


def tally(findings: Sequence[Finding]) -> list[Cell]:
    """How many findings have each verdict; verdicts that do not occur are left out."""
    cells = []
    for holds, (verdict, sign, singular, plural) in _VERDICTS.items():
        count = sum(finding.holds == holds for finding in findings)
        if count:
            cells.append(Cell(text=f"{sign} {count} {singular if count == 1 else plural}", verdict=verdict))
    return cells


def _verdict_text(finding: Finding) -> str:
    agreeing, count = finding.cases
    if finding.holds is None:
        return "no records"
    if finding.holds == 1:
        return "agrees with the paper"
    if finding.holds == 0:
        others = "no significant difference"
        return f"agrees with the paper in {agreeing} of {count} cases, {others} in the rest" if agreeing else others
    return "differs from the paper" + (f", agrees in {agreeing} of {count} cases" if count > 1 else "")
