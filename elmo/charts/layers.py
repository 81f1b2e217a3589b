"""Scores of layers on one scale: a line of dots for each set of vectors, the paper's beside ours; fit for a phone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elmo.charts.line import even_ticks
from elmo.charts.svg import label, picture

WIDTH, SIDE, TOP, STEP = 420, 22, 14, 66
_RULES = ".name { paint-order: stroke; stroke: var(--ground); stroke-width: 6px }"  # lines of the scale pass behind
_LETTER = 7.5  # width of a small letter


@dataclass(frozen=True, kw_only=True)
class Dots:
    """One set of vectors: figures by the names of its layers."""

    label: str
    figures: Mapping[str, float]
    ours: bool = True  # False: quoted


def layer_chart(name: str, rows: Sequence[Dots], *, title: str, x_label: str) -> str:
    """A picture with a track a row; dots of ours are round, quoted ones square."""
    values = [figure for row in rows for figure in row.figures.values()] or [0.0]
    ticks = even_ticks(min(values), max(max(values), min(values) + 1.0))
    bottom = TOP + STEP * len(rows)

    def across(value: float) -> float:
        return SIDE + (WIDTH - 2 * SIDE) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts = []
    for tick in ticks:
        parts.append(f'<path class="rule" d="M{across(tick):.1f} {TOP}V{bottom}"/>')
        parts.append(label(across(tick), bottom + 18, f"{tick:g}", kind="small", anchor="middle"))
    parts.append(label(WIDTH / 2, bottom + 40, x_label, anchor="middle"))
    for number, row in enumerate(rows):
        parts += _track(row, TOP + STEP * number, across)
    said = [f"{row.label}: " + ", ".join(f"{n} {v:.1f}" for n, v in row.figures.items()) + "." for row in rows]
    return picture(
        name, WIDTH, bottom + 52, title=title, says=" ".join([f"{x_label}.", *said]), parts=parts, rules=_RULES
    )


def _track(row: Dots, y: float, across: Callable[[float], float]) -> list[str]:
    """The row's name, its line and dots; a dot's name stands above it, or below where another name is in the way."""
    kind = "first" if row.ours else "second"
    at = y + 44
    places = sorted((across(value), name) for name, value in row.figures.items())
    parts = [label(SIDE - 14, y + 16, row.label, kind="name")]
    if len(places) > 1:
        parts.append(f'<path class="{kind}" d="M{places[0][0]:.1f} {at}H{places[-1][0]:.1f}"/>')
    ends = [float("-inf"), float("-inf")]  # where the names above and below the line end
    for x, name in places:
        half = _LETTER * len(name) / 2
        side = 0 if x - half > ends[0] or ends[0] <= ends[1] else 1
        ends[side] = x + half + 2
        if row.ours:
            parts.append(f'<circle class="first mark" cx="{x:.1f}" cy="{at}" r="5"/>')
        else:
            parts.append(f'<rect class="second mark" x="{x - 5:.1f}" y="{at - 5}" width="10" height="10"/>')
        parts.append(label(x, at + (20 if side else -10), name, kind="small", anchor="middle"))
    return parts
