"""Scores of layers as dots on one scale: one row for each model, published figures next to ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elmo.charts.line import even_ticks
from elmo.charts.svg import label, mark, picture, segment

WIDTH, SIDE, TOP, STEP = 420, 22, 14, 66
_STYLE = ".name { paint-order: stroke; stroke: var(--ground); stroke-width: 6px }"  # a row's name covers the grid lines
_LETTER_WIDTH = 7.5  # of small text


@dataclass(frozen=True, kw_only=True)
class Dots:
    """One row: the scores of a model's layers, by layer name."""

    label: str
    figures: Mapping[str, float]
    ours: bool = True  # False: published figures


def layer_chart(name: str, rows: Sequence[Dots], *, title: str, x_label: str) -> str:
    """A chart with one line of dots per row; our dots are round, published ones square."""
    values = [figure for row in rows for figure in row.figures.values()] or [0.0]
    ticks = even_ticks(min(values), max(max(values), min(values) + 1.0))
    bottom = TOP + STEP * len(rows)

    def across(value: float) -> float:
        return SIDE + (WIDTH - 2 * SIDE) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts = []
    for tick in ticks:
        parts.append(segment("rule", across(tick), TOP, to_y=bottom))
        parts.append(label(across(tick), bottom + 18, f"{tick:g}", kind="small", anchor="middle"))
    parts.append(label(WIDTH / 2, bottom + 40, x_label, anchor="middle"))
    for number, row in enumerate(rows):
        parts += _row(row, TOP + STEP * number, across)
    texts = [f"{row.label}: " + ", ".join(f"{n} {v:.1f}" for n, v in row.figures.items()) + "." for row in rows]
    description = " ".join([f"{x_label}.", *texts])
    return picture(name, WIDTH, bottom + 52, title=title, description=description, parts=parts, style=_STYLE)


def _row(row: Dots, top: float, across: Callable[[float], float]) -> list[str]:
    """The row's name, its line and its dots; a layer's name is above its dot, or below where names would overlap."""
    series = "first" if row.ours else "second"
    y = top + 44
    dots = sorted((across(value), layer) for layer, value in row.figures.items())
    parts = [label(SIDE - 14, top + 16, row.label, kind="name")]
    if len(dots) > 1:
        parts.append(segment(series, dots[0][0], y, to_x=dots[-1][0]))
    text_ends = [float("-inf"), float("-inf")]  # where the names above and below the line end so far
    for x, layer in dots:
        half = _LETTER_WIDTH * len(layer) / 2
        side = 0 if x - half > text_ends[0] or text_ends[0] <= text_ends[1] else 1
        text_ends[side] = x + half + 2
        parts.append(mark(series, x, y, radius=5))
        parts.append(label(x, y + (20 if side else -10), layer, kind="small", anchor="middle"))
    return parts
