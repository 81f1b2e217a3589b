"""Small multiples: one small line chart per series, all with the same axes, for more series than one chart can show."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.charts.line import Line, log_ticks, scale
from elmo.charts.svg import label, picture, segment

COLUMNS, WIDTH, HEIGHT, GAP, LEFT, TOP, BOTTOM = 4, 120, 70, 34, 48, 40, 40  # of one panel and around all of them


def small_multiples(name: str, lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> str:
    """A panel for each line with points, in rows of four; above it its label and last value. The y axis is logarithmic.

    The deviations of the points are not drawn.
    """
    lines = [line for line in lines if line.points]
    xs = [x for line in lines for x, _, _ in line.points] or [1.0]
    ys = [y for line in lines for _, y, _ in line.points if y > 0] or [1.0]
    ticks = [low_tick, *_, high_tick] = log_ticks(min(ys), max(ys))
    low, high = min(*ys, low_tick), max(*ys, high_tick)
    parts = [label(LEFT, 18, f"{y_label} by {x_label}, last value beside each name", kind="small")]
    for number, line in enumerate(lines):
        left = LEFT + (number % COLUMNS) * (WIDTH + GAP / 2)
        top = TOP + (number // COLUMNS) * (HEIGHT + GAP) + GAP / 2
        across, up = (
            scale(min(xs), max(xs), left, left + WIDTH, log=False),
            scale(low, high, top + HEIGHT, top, log=True),
        )
        for tick in (ticks[0], ticks[-1]):
            parts.append(segment("rule", left, up(tick), to_x=left + WIDTH))
            if number % COLUMNS == 0:
                parts.append(label(LEFT - 6, up(tick) + 4, f"{tick:,g}", kind="small", anchor="end"))
        track = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y, _ in line.points if y > 0)
        parts.append(f'<polyline class="first" points="{track}"/>')
        parts.append(label(left, top - 4, f"{line.label} {line.points[-1][1]:,.4g}"))
    num_rows = -(-len(lines) // COLUMNS)
    width = LEFT + COLUMNS * (WIDTH + GAP / 2)
    height = TOP + num_rows * (HEIGHT + GAP) + BOTTOM
    parts.append(label(LEFT, height - 14, f"{x_label} {min(xs):,g} to {max(xs):,g}", kind="small"))
    values = ", ".join(f"{line.label} {line.points[0][1]:,.4g} to {line.points[-1][1]:,.4g}" for line in lines)
    description = f"{y_label} by {x_label}, first and last value: {values}." if lines else "No points."
    return picture(name, width, height, title=title, description=description, parts=parts)
