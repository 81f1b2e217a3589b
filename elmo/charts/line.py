"""Lines over a plain or logarithmic axis, with their deviations as bands: sample efficiency, courses of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from elmo.charts.svg import label, picture

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 300, 62, 14, 36, 54


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points from left to right; a deviation of None draws no band."""

    label: str
    points: Sequence[tuple[float, float, float | None]]  # x, y, deviation


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
    x_unit: str = "",  # after each tick's number
    from_zero: bool = False,  # what is nearly flat then looks it
) -> str:
    """A picture of at most two lines: the first plain with round marks, the second dashed with square ones."""
    assert len(lines) <= 2, "a third line would need a third kind of mark"
    lines = [line for line in lines if line.points]
    xs = sorted({x for line in lines for x, _, _ in line.points}) or [1.0]
    ys = [y + sign * (d or 0.0) for line in lines for _, y, d in line.points for sign in (-1, 1)] or [1.0]
    if log_y:
        ys = [y for y in ys if y > 0] or [1.0]
    y_ticks = log_ticks(min(ys), max(ys)) if log_y else even_ticks(0.0 if from_zero else min(ys), max(ys))
    x_ticks = list(x_ticks if x_ticks is not None else (xs if log_x else even_ticks(min(xs), max(xs))))
    floor = min(*ys, *y_ticks)
    across = _scale(min(*xs, *x_ticks), max(*xs, *x_ticks), LEFT, WIDTH - RIGHT, log=log_x)
    up = _scale(floor, max(*ys, *y_ticks), HEIGHT - BOTTOM, TOP, log=log_y)
    parts = _axes(x_ticks, y_ticks, across, up, x_label, y_label, x_unit)
    for kind, line in zip(("first", "second"), lines, strict=False):
        parts += _drawn(kind, line, across, up, floor=floor)
    parts += _legend(lines)
    return picture(name, WIDTH, HEIGHT, title=title, says=_in_words(lines, x_label, y_label, x_unit), parts=parts)


def even_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """About `wanted` round numbers from at most `low` to at least `high`."""
    span = max(high - low, abs(high) * 1e-6, 1e-9)
    size = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(size * m for m in (1, 2, 5, 10) if span / (size * m) <= wanted)
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


def _scale(low: float, high: float, start: float, end: float, *, log: bool) -> Callable[[float], float]:
    change: Callable[[float], float] = (lambda value: math.log(max(value, 1e-12))) if log else (lambda value: value)
    first, last = change(low), change(high)

    def place(value: float) -> float:
        share = (change(value) - first) / (last - first) if last > first else 0.5
        return start + (end - start) * share

    return place


def _axes(
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    across: Callable[[float], float],
    up: Callable[[float], float],
    x_label: str,
    y_label: str,
    x_unit: str,
) -> list[str]:
    parts = []
    for tick in y_ticks:
        parts.append(f'<path class="rule" d="M{LEFT} {up(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(label(LEFT - 8, up(tick) + 4, f"{tick:,g}", kind="small", anchor="end"))
    taken = -math.inf
    for tick in x_ticks:
        text = f"{tick:,g}{x_unit}"
        half = 4.0 * len(text)
        if across(tick) - half > taken:  # numbers that would run into each other are left out
            at = min(across(tick), WIDTH - half - 2)
            parts.append(label(at, HEIGHT - BOTTOM + 20, text, kind="small", anchor="middle"))
            taken = across(tick) + half + 4
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, anchor="middle"))
    parts.append(
        f'<text transform="translate(15 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    return parts


def _drawn(
    kind: str, line: Line, across: Callable[[float], float], up: Callable[[float], float], *, floor: float
) -> list[str]:
    parts = []
    for known, run in groupby(line.points, key=lambda point: point[2] is not None):
        spread = [(x, y, d or 0.0) for x, y, d in run]
        if not known or len(spread) < 2:  # a point without a deviation parts the band
            continue
        above = [f"{across(x):.1f},{up(y + d):.1f}" for x, y, d in spread]
        below = [f"{across(x):.1f},{up(max(y - d, floor)):.1f}" for x, y, d in reversed(spread)]
        parts.append(f'<polygon class="{kind} band" points="{" ".join([*above, *below])}"/>')
    track = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y, _ in line.points)
    parts.append(f'<polyline class="{kind}" points="{track}"/>')
    if len(line.points) <= 20:
        parts += [_mark(kind, across(x), up(y)) for x, y, _ in line.points]
    for x, y, d in line.points if len(line.points) <= 20 else ():
        if d is None:
            continue
        low, high = up(max(y - d, floor)), up(y + d)
        parts.append(f'<path class="{kind} mark" d="M{across(x):.1f} {low:.1f}V{high:.1f}"/>')
    return parts


def _mark(kind: str, x: float, y: float) -> str:
    if kind == "first":
        return f'<circle class="first mark" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    return f'<rect class="second mark" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'


def _legend(lines: Sequence[Line]) -> list[str]:
    parts, x = [], float(LEFT)
    for kind, line in zip(("first", "second"), lines, strict=False):
        parts.append(f'<path class="{kind}" d="M{x:.0f} 18h34"/>')
        parts.append(_mark(kind, x + 17, 18))
        parts.append(label(x + 42, 23, line.label))
        x += 62 + 8 * len(line.label)
    return parts


def _in_words(lines: Sequence[Line], x_label: str, y_label: str, x_unit: str) -> str:
    if not lines:
        return "No points."
    found = [f"{y_label} by {x_label}."]
    for line in lines:
        points = line.points if len(line.points) <= 12 else [*line.points[:: len(line.points) // 8], line.points[-1]]
        said = [f"{y:.4g}{'' if d is None else f' ± {d:.2g}'} at {x:,g}{x_unit}" for x, y, d in points]
        found.append(f"{line.label}: {', '.join(dict.fromkeys(said))}.")
    return " ".join(found)
