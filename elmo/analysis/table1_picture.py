"""Table 1 as a picture: for each task a line from baseline to +ELMo, the paper's above ours, on one scale of percent.

Plain SVG, no library: it scales, follows a dark page, and says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from elmo.analysis.table1 import Entry, Row

WIDTH, LEFT, RIGHT, TOP, STEP = 760, 120, 130, 54, 58
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #222 } .small { font-size: 11px; fill: #666 }
.grid { stroke: #ddd } .paper { stroke: #999; fill: #999 } .ours { stroke: #1f6feb; fill: #1f6feb }
.line { stroke-width: 2.5 } .from { fill: #fff; stroke-width: 2 } .spread { stroke-width: 1 }
@media (prefers-color-scheme: dark) {
text { fill: #eee } .small { fill: #aaa } .grid { stroke: #444 } .from { fill: #222 } }
"""


def as_svg(rows: Sequence[Row]) -> str:
    """The whole picture."""
    values = [v for row in rows for v in _figures(row)]
    low = 5 * (min(values, default=40.0) // 5)
    high = min(100.0, 5 * (max(values, default=100.0) // 5 + 1))
    height = TOP + STEP * len(rows) + 30
    scale = _Scale(low, high)
    summary = "; ".join(_sentence(row) for row in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d">',
        "<title id='t'>Six tasks with and without ELMo</title>",
        f"<desc id='d'>{escape(summary)}</desc><style>{_STYLE}</style>",
        *_legend(),
        *_grid(scale, height),
    ]
    for number, row in enumerate(rows):
        parts += _task(row, TOP + STEP * number, scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Scale:
    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def x(self, value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (value - self.low) / max(self.high - self.low, 1e-9), 1)


def _figures(row: Row) -> list[float]:
    found = [row.paper.baseline, row.paper.elmo]
    for entry in (row.baseline, row.elmo):
        if entry is not None:
            found += [entry.mean - (entry.deviation or 0), entry.mean + (entry.deviation or 0)]
    return found


def _task(row: Row, y: int, scale: _Scale) -> list[str]:
    paper = row.paper
    parts = [
        f'<text x="8" y="{y + 20}">{escape(paper.title)}</text>',
        f'<text class="small" x="8" y="{y + 36}">{escape(paper.metric)}</text>',
        *_line("paper", y + 12, scale, paper.baseline, paper.elmo),
        *_label(y + 16, f"{paper.absolute:+.1f} / {paper.relative:.0f}%"),
    ]
    ours = y + 32
    if row.baseline and row.elmo:
        parts += _line("ours", ours, scale, row.baseline.mean, row.elmo.mean)
        relative = "" if row.relative is None else f" / {row.relative:.0f}%"
        parts += _label(ours + 4, f"{row.absolute:+.1f}{relative}")
    for entry in (row.baseline, row.elmo):
        parts += _spread(entry, ours, scale)
    return parts


def _line(kind: str, y: int, scale: _Scale, start: float, end: float) -> list[str]:
    a, b = scale.x(start), scale.x(end)
    return [
        f'<line class="{kind} line" x1="{a}" y1="{y}" x2="{b}" y2="{y}"/>',
        f'<circle class="{kind} from" cx="{a}" cy="{y}" r="4.5"/><circle class="{kind}" cx="{b}" cy="{y}" r="5"/>',
    ]


def _spread(entry: Entry | None, y: int, scale: _Scale) -> list[str]:
    if entry is None or not entry.deviation:
        return []
    a, b = scale.x(entry.mean - entry.deviation), scale.x(entry.mean + entry.deviation)
    return [f'<path class="ours spread" fill="none" d="M{a} {y - 6}v12M{b} {y - 6}v12M{a} {y}H{b}"/>']


def _label(y: int, text: str) -> list[str]:
    return [f'<text class="small" x="{WIDTH - RIGHT + 14}" y="{y}">{escape(text)}</text>']


def _legend() -> list[str]:
    return [
        '<circle class="paper from" cx="126" cy="18" r="4.5"/><text class="small" x="136" y="22">baseline</text>',
        '<circle class="paper" cx="206" cy="18" r="5"/><text class="small" x="216" y="22">+ELMo</text>',
        '<line class="paper line" x1="276" y1="18" x2="300" y2="18"/><text class="small" x="306" y="22">paper</text>',
        '<line class="ours line" x1="356" y1="18" x2="380" y2="18"/><text class="small" x="386" y="22">ours</text>',
        f'<text class="small" x="{WIDTH - RIGHT + 14}" y="22">points / error gone</text>',
    ]


def _grid(scale: _Scale, height: int) -> list[str]:
    parts = []
    step = 5 if scale.high - scale.low <= 40 else 10
    value = scale.low
    while value <= scale.high:
        x = scale.x(value)
        parts.append(f'<line class="grid" x1="{x}" y1="{TOP - 12}" x2="{x}" y2="{height - 26}"/>')
        parts.append(f'<text class="small" text-anchor="middle" x="{x}" y="{height - 10}">{value:.0f}</text>')
        value += step
    return parts


def _sentence(row: Row) -> str:
    ours = f"ours {row.baseline.mean:.1f} to {row.elmo.mean:.1f}" if row.baseline and row.elmo else "ours incomplete"
    return f"{row.paper.title}: paper {row.paper.baseline} to {row.paper.elmo}, {ours}"
