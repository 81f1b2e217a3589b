"""The course of a run as a picture: training loss and held-out perplexity over steps, drawn as plain SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from elmo.files import atomic_file

WIDTH, HEIGHT, LEFT, BOTTOM = 760, 380, 70, 50
Line = tuple[str, str, Sequence[tuple[float, float]]]  # label, colour, (x, y) points


def draw_curve(path: Path, lines: Sequence[Line], *, x_label: str, y_label: str) -> None:
    """Writes an SVG with a logarithmic y axis; lines without points are left out."""
    lines = [line for line in lines if line[2]]
    if not lines:
        return
    xs = [x for _, _, points in lines for x, _ in points]
    ys = [y for _, _, points in lines for _, y in points]
    ticks = _ticks(min(ys), max(ys))
    low, high = math.log(min(ticks[0], min(ys))), math.log(max(ticks[-1], max(ys)))
    last = max(xs) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log(y) - low) / max(high - low, 1e-9)
        return LEFT + (WIDTH - LEFT - 20) * x / last, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 20) * share

    font = 'font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in ticks:
        _, y = place(0, tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, _ = place(share * last, math.exp(low))
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{share * last:,.0f}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">{x_label}</text>')
    parts.append(f'<text transform="translate(16,{HEIGHT / 2}) rotate(-90)" text-anchor="middle">{y_label}</text>')
    for number, (label, colour, points) in enumerate(lines):
        track = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in points)
        parts.append(f'<polyline points="{track}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{WIDTH - 30}" y="{34 + 16 * number}" text-anchor="end" fill="{colour}">{label}</text>')
    with atomic_file(path) as partial:
        partial.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers (1, 2, 5 times a power of ten) from below the lowest to above the highest."""
    steps = [m * 10.0**e for e in range(-3, 10) for m in (1, 2, 5)]
    below = max((s for s in steps if s <= low), default=steps[0])
    above = min((s for s in steps if s >= high), default=steps[-1])
    return [s for s in steps if below <= s <= above]
