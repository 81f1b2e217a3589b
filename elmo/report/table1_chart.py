"""Table 1 as a picture: for each task what ELMo adds, the paper's gain above ours, on one scale of points.

Narrow enough to be read on a phone; each bar's end says from where to where the score went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elmo.charts.svg import label, picture
from elmo.report.table1 import Row

WIDTH, SIDE, WORDS, TOP, STEP, BAR = 420, 10, 150, 44, 74, 14  # WORDS: room for the text at a bar's end
_RULES = ".bar { stroke: none } .spread { fill: none; stroke: var(--ink); stroke-width: 1.5 }"


def as_svg(rows: Sequence[Row], name: str = "six-tasks-picture") -> str:
    """The whole picture."""
    gains = [gain for row in rows for gain in (row.paper.absolute, *_reach(row))]
    low, high = min([0.0, *gains]), max([1.0, *gains])

    def across(points: float) -> float:
        return SIDE + (WIDTH - 2 * SIDE - WORDS) * (points - low) / (high - low)

    height = TOP + STEP * len(rows) + 6
    parts = _legend()
    for number, row in enumerate(rows):
        y = TOP + STEP * number
        ours = row.absolute
        parts.append(label(SIDE, y + 14, f"{row.paper.title}, {row.paper.metric}"))
        parts += _bar("second", y + 22, row.paper.absolute, across)
        words = f"{row.paper.absolute:+.1f}: {row.paper.baseline:.1f} to {row.paper.elmo:.1f}"
        parts.append(label(across(max(row.paper.absolute, 0.0)) + 8, y + 33, words, kind="small"))
        if ours is None or row.baseline is None or row.elmo is None:
            parts.append(label(across(0.0) + 4, y + 53, "runs without or with ELMo are missing", kind="small"))
            continue
        parts += _bar("first", y + 42, ours, across)
        least, most = _reach(row)
        if most > least:
            parts.append(f'<path class="spread" d="M{across(least):.1f} {y + 49}H{across(most):.1f}"/>')
        words = f"{ours:+.1f}: {row.baseline.mean:.1f} to {row.elmo.mean:.1f}"
        parts.append(label(across(max(most, 0.0)) + 8, y + 53, words, kind="small"))
    parts.append(f'<path class="rule" d="M{across(0):.1f} {TOP}V{height - 6}"/>')
    title = "What ELMo adds on six tasks, in points"
    says = "; ".join(_sentence(row) for row in rows) or "No runs."
    return picture(name, WIDTH, height, title=title, says=says, parts=parts, rules=_RULES)


def _reach(row: Row) -> tuple[float, float]:
    """Our gain less and plus the larger of both sides' deviations over seeds."""
    if row.absolute is None or row.baseline is None or row.elmo is None:
        return 0.0, 0.0
    noise = max(row.baseline.deviation or 0.0, row.elmo.deviation or 0.0)
    return row.absolute - noise, row.absolute + noise


def _bar(kind: str, y: float, gain: float, across: Callable[[float], float]) -> list[str]:
    start, end = sorted((across(0.0), across(gain)))
    wide = max(end - start, 1.0)
    return [f'<rect class="{kind} mark bar" x="{start:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}" rx="2"/>']


def _legend() -> list[str]:
    found = []
    for x, kind, text in ((SIDE, "second", "paper"), (SIDE + 90, "first", "ours, with deviation")):
        found.append(f'<rect class="{kind} mark bar" x="{x}" y="10" width="22" height="{BAR}" rx="2"/>')
        found.append(label(x + 30, 22, text))
    return found


def _sentence(row: Row) -> str:
    ours = f"ours {row.baseline.mean:.1f} to {row.elmo.mean:.1f}" if row.baseline and row.elmo else "ours incomplete"
    return f"{row.paper.title}: paper {row.paper.baseline} to {row.paper.elmo}, {ours}"
