"""Line charts with linear or logarithmic axes and standard deviations as bands: sample efficiency, training curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from elmo.charts.svg import SERIES, label, mark, picture, segment

WIDTH, PLOT_HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 210, 62, 14, 36, 54
LEGEND_ROW = 20
MOST_MARKS = 20  # a line with more points than this has no marks
Scale = Callable[[float], float]  # from a value to a coordinate


@dataclass(frozen=True, kw_only=True)
class Line:
    """One series of points, from left to right; a point without deviation interrupts the band."""

    label: str
    points: Sequence[tuple[float, float, float | None]]  # x, y, standard deviation of y


def line_chart(
    name: str,
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    x_ticks: Sequence[float] | None = None,
    x_unit: str = "",  # written after the number of each tick
    from_zero: bool = False,  # y starts at 0, so that a nearly flat line looks flat
) -> str:
    """A chart of at most three lines, which differ in colour, dashes and marks; lines without points are left out."""
    assert len(lines) <= len(SERIES), "another line needs another kind of mark"
    lines = [line for line in lines if line.points]
    xs = sorted({x for line in lines for x, _, _ in line.points}) or [1.0]
    ys = [y + sign * (d or 0.0) for line in lines for _, y, d in line.points for sign in (-1, 1)] or [1.0]
    if log_y:
        ys = [y for y in ys if y > 0] or [1.0]
    y_ticks = log_ticks(min(ys), max(ys)) if log_y else even_ticks(0.0 if from_zero else min(ys), max(ys))
    x_ticks = list(x_ticks if x_ticks is not None else (xs if log_x else even_ticks(min(xs), max(xs))))
    legend, top = _legend(lines)
    bottom, floor = top + PLOT_HEIGHT, min(*ys, *y_ticks)
    across = scale(min(*xs, *x_ticks), max(*xs, *x_ticks), LEFT, WIDTH - RIGHT, log=log_x)
    up = scale(floor, max(*ys, *y_ticks), bottom, top, log=log_y)
    parts = [*_x_axis(x_ticks, across, bottom, x_label, x_unit), *_y_axis(y_ticks, up, (top + bottom) / 2, y_label)]
    for series, line in zip(SERIES, lines, strict=False):
        parts += _series(series, line, across, up, floor=floor)
    description = _description(lines, x_label, y_label, x_unit)
    return picture(name, WIDTH, bottom + BOTTOM, title=title, description=description, parts=[*parts, *legend])


def even_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers with equal steps, from at most `low` to at least `high`."""
    span = max(high - low, abs(high) * 1e-6, 1e-9)
    size = 10.0 ** math.floor(math.log10(span / count))
    step = next(size * m for m in (1, 2, 5, 10) if span / (size * m) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 9) for number in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between `low` and `high`: 1, 2 and 5 times powers of ten, or more where those are too few."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    for multiples in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)):
        steps = [float(f"{m}e{e}") for e in powers for m in multiples]
        inside = [step for step in steps if low * 0.99 <= step <= high * 1.01]
        if len(inside) > 2:
            return inside
    return even_ticks(low, high, 4)


def scale(low: float, high: float, start: float, end: float, *, log: bool) -> Scale:
    """Maps values from `low` to `high` onto coordinates from `start` to `end`; a single value maps to the middle."""
    transform: Scale = (lambda value: math.log(max(value, 1e-12))) if log else (lambda value: value)
    first, last = transform(low), transform(high)

    def coordinate(value: float) -> float:
        share = (transform(value) - first) / (last - first) if last > first else 0.5
        return start + (end - start) * share

    return coordinate


def _x_axis(ticks: Sequence[float], across: Scale, bottom: float, x_label: str, unit: str) -> list[str]:
    parts, text_end = [], -math.inf
    for tick in ticks:
        text = f"{tick:,g}{unit}"
        half = 4.0 * len(text)
        if across(tick) - half > text_end:  # a number that would overlap the one before it is left out
            x = min(across(tick), WIDTH - half - 2)
            parts.append(label(x, bottom + 20, text, kind="small", anchor="middle"))
            text_end = across(tick) + half + 4
    return [*parts, label((LEFT + WIDTH - RIGHT) / 2, bottom + 44, x_label, anchor="middle")]


def _y_axis(ticks: Sequence[float], up: Scale, middle: float, y_label: str) -> list[str]:
    parts = []
    for tick in ticks:
        parts.append(segment("rule", LEFT, up(tick), to_x=WIDTH - RIGHT))
        parts.append(label(LEFT - 8, up(tick) + 4, f"{tick:,g}", kind="small", anchor="end"))
    turned = f'<text transform="translate(15 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    return [*parts, turned]


def _series(series: str, line: Line, across: Scale, up: Scale, *, floor: float) -> list[str]:
    """The band of the deviations, the line itself, and marks and error bars where there are few points."""
    parts = []
    for has_deviation, group in groupby(line.points, key=lambda point: point[2] is not None):
        points = [(x, y, d or 0.0) for x, y, d in group]
        if not has_deviation or len(points) < 2:
            continue
        above = [f"{across(x):.1f},{up(y + d):.1f}" for x, y, d in points]
        below = [f"{across(x):.1f},{up(max(y - d, floor)):.1f}" for x, y, d in reversed(points)]
        parts.append(f'<polygon class="{series} band" points="{" ".join([*above, *below])}"/>')
    track = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y, _ in line.points)
    parts.append(f'<polyline class="{series}" points="{track}"/>')
    if len(line.points) <= MOST_MARKS:
        parts += [mark(series, across(x), up(y)) for x, y, _ in line.points]
        parts += [
            segment(f"{series} mark", across(x), up(max(y - d, floor)), to_y=up(y + d))
            for x, y, d in line.points
            if d is not None
        ]
    return parts


def _legend(lines: Sequence[Line]) -> tuple[list[str], float]:
    """The legend above the plot, in as many rows as it needs, and the y coordinate at which the plot begins."""
    parts, x, y = [], float(LEFT), 18.0
    for series, line in zip(SERIES, lines, strict=False):
        width = 62 + 8 * len(line.label)
        if x > LEFT and x + width > WIDTH:
            x, y = float(LEFT), y + LEGEND_ROW
        parts += [
            segment(series, x, y, to_x=x + 34),
            mark(series, x + 17, y),
            label(x + 42, y + 5, line.label),
        ]
        x += width
    return parts, TOP + y - 18


def _description(lines: Sequence[Line], x_label: str, y_label: str, x_unit: str) -> str:
    """The chart in words; of a line with many points, about eight are named."""
    if not lines:
        return "No points."
    sentences = [f"{y_label} by {x_label}."]
    for line in lines:
        points = line.points if len(line.points) <= 12 else [*line.points[:: len(line.points) // 8], line.points[-1]]
        values = [f"{y:.4g}{'' if d is None else f' ± {d:.2g}'} at {x:,g}{x_unit}" for x, y, d in points]
        sentences.append(f"{line.label}: {', '.join(dict.fromkeys(values))}.")
    return " ".join(sentences)
