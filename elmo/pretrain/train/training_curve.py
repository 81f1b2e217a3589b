"""The curves of a training run as an SVG file: training loss and held-out perplexity over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from elmo.charts.line import Line, line_chart
from elmo.files import atomic_file


def draw_curves(path: Path, curves: Mapping[str, Sequence[tuple[float, float]]], *, x_label: str, y_label: str) -> None:
    """Writes a chart of at most three curves, label -> (x, y) points, with a logarithmic y axis.

    Curves without points are left out; no file is written if none has points.
    """
    lines = [Line(label=label, points=[(x, y, None) for x, y in points]) for label, points in curves.items() if points]
    if not lines:
        return
    title = f"{y_label} by {x_label}"
    chart = line_chart("training-curve", lines, title=title, x_label=x_label, y_label=y_label, log_y=True)
    with atomic_file(path) as partial:
        partial.write_text(chart, encoding="utf-8", newline="\n")
