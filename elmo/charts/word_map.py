"""The uses of a word as points in a plane, by their two principal components: plain SVG, or text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

SIZE, GAP, LEFT, TOP = 132, 14, 78, 64
_SPREAD = 1e-4  # of the points against their distance from zero: below, they are one point
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222 } .head { font-size: 15px } .small { font-size: 10px; fill: #666 }
.box { fill: none; stroke: #ccc } .first { fill: #1f6feb } .second { fill: #d9480f }
@media (prefers-color-scheme: dark) { text { fill: #eee } .small { fill: #aaa } .box { stroke: #555 } }
"""


def plane(vectors: np.ndarray) -> np.ndarray:
    """The vectors (N, D) on their first two principal components, scaled into [-1, 1], (N, 2); one point stays one."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    if np.abs(centred).max(initial=0.0) <= _SPREAD * np.abs(vectors).max(initial=0.0):
        return np.zeros((len(vectors), 2))
    left, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * strengths)[:, :2]  # (N, <= 2)
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    points *= np.where(points[np.abs(points).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)  # a sign of its own means nothing
    return points / np.abs(points).max()


def as_svg(words: Mapping[str, tuple[np.ndarray, Sequence[str]]], title: str) -> str:
    """A panel for each word (across) and layer (down); words -> vectors (L+1, N, D) and the N senses."""
    num_layers = len(next(iter(words.values()))[0])
    width = LEFT + len(words) * (SIZE + GAP)
    height = TOP + num_layers * (SIZE + GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t">',
        f"<title id='t'>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="head" x="{LEFT}" y="20">{escape(title)}</text>',
    ]
    for layer in range(num_layers):
        y = TOP + layer * (SIZE + GAP)
        parts.append(f'<text x="8" y="{y + SIZE // 2}">layer {layer}</text>')
        if layer == 0:
            parts.append(f'<text class="small" x="8" y="{y + SIZE // 2 + 14}">no context</text>')
    for column, (word, (vectors, senses)) in enumerate(words.items()):
        x = LEFT + column * (SIZE + GAP)
        first, second = dict.fromkeys(senses)
        parts.append(f'<text x="{x}" y="{TOP - 22}">{escape(word)}</text>')
        parts.append(
            f'<text class="small" x="{x}" y="{TOP - 8}"><tspan class="first">●</tspan> {escape(first)} '
            f'<tspan class="second">■</tspan> {escape(second)}</text>'
        )
        for layer in range(num_layers):
            parts += _panel(x, TOP + layer * (SIZE + GAP), plane(vectors[layer]), [s == first for s in senses])
    return "\n".join([*parts, "</svg>"]) + "\n"


def as_text(points: np.ndarray, labels: Sequence[str], width: int = 56, height: int = 13) -> list[str]:
    """The points (N, 2) in a frame of characters, each axis in full; a label that would overlap moves down."""
    grid = [[" "] * width for _ in range(height)]
    reach = np.abs(points).max(axis=0, initial=0.0)  # (2,)
    for (x, y), label in zip(points / np.where(reach > 0, reach, 1.0), labels, strict=True):
        column = round((x + 1) / 2 * (width - len(label)))
        row = round((1 - y) / 2 * (height - 1))
        places = [(r % height, column) for r in range(row, row + height)]
        row, column = next((place for place in places if _is_free(grid, *place, len(label))), places[0])
        grid[row][column : column + len(label)] = label
    return ["┌" + "─" * width + "┐", *("│" + "".join(line) + "│" for line in grid), "└" + "─" * width + "┘"]


def _is_free(grid: list[list[str]], row: int, column: int, length: int) -> bool:
    return all(cell == " " for cell in grid[row][max(0, column - 1) : column + length + 1])


def _panel(x: int, y: int, points: np.ndarray, is_first: Sequence[bool]) -> list[str]:
    parts = [f'<rect class="box" x="{x}" y="{y}" width="{SIZE}" height="{SIZE}" rx="4"/>']
    for (across, up), first in zip(points, is_first, strict=True):
        at_x, at_y = x + SIZE / 2 + across * (SIZE / 2 - 10), y + SIZE / 2 - up * (SIZE / 2 - 10)
        if first:
            parts.append(f'<circle class="first" cx="{at_x:.1f}" cy="{at_y:.1f}" r="5" fill-opacity="0.8"/>')
        else:
            where = f'x="{at_x - 4:.1f}" y="{at_y - 4:.1f}"'
            parts.append(f'<rect class="second" {where} width="8" height="8" fill-opacity="0.8"/>')
    return parts
