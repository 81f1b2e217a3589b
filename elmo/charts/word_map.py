"""The occurrences of a word as points on the plane of their two principal components, as SVG or as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from elmo.charts.svg import label, mark, picture

SIZE, GAP, LEFT, TOP = 132, 14, 78, 64
GRID_COLUMNS, GRID_WIDTH, GRID_HEAD = 3, 420, 42  # of `word_grid`; GRID_HEAD: room for a word and its senses
_SAME_POINT = 1e-4  # points whose spread is below this share of their magnitude count as one point
_STYLE = """
text { font-size: 12px } .head { font-size: 15px } .small { font-size: 10px }
.word { font-size: 15px; font-weight: 600 } .senses { font-size: 13px; fill: var(--faint) }
.box { fill: none; stroke: var(--rule) } .mark { stroke: none; fill-opacity: .8 }
tspan.first { fill: var(--first); stroke: none } tspan.second { fill: var(--second); stroke: none }
"""


def project_to_plane(vectors: np.ndarray) -> np.ndarray:
    """The vectors (N, D) on their first two principal components, scaled into [-1, 1], (N, 2).

    Vectors that are equal, up to rounding, all become the point (0, 0).
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    if np.abs(centred).max(initial=0.0) <= _SAME_POINT * np.abs(vectors).max(initial=0.0):
        return np.zeros((len(vectors), 2))
    left, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * strengths)[:, :2]  # (N, <= 2)
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    # the sign of a component is arbitrary: its largest value is made positive
    points *= np.where(points[np.abs(points).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    points /= np.abs(points).max()
    return points


def word_map(name: str, words: Mapping[str, tuple[np.ndarray, Sequence[str]]], *, title: str) -> str:
    """A chart with one column per word and one row per layer; words -> vectors (L+1, N, D) and the N senses.

    Each word has two senses: occurrences in the first are circles, those in the second are squares.
    """
    num_layers = len(next(iter(words.values()))[0])
    width = LEFT + len(words) * (SIZE + GAP)
    height = TOP + num_layers * (SIZE + GAP) + 10
    parts = [label(LEFT, 20, title, kind="head")]
    for layer in range(num_layers):
        y = TOP + layer * (SIZE + GAP)
        parts.append(label(8, y + SIZE // 2, f"layer {layer}"))
        if layer == 0:
            parts.append(label(8, y + SIZE // 2 + 14, "no context", kind="small"))
    for column, (word, (vectors, senses)) in enumerate(words.items()):
        x = LEFT + column * (SIZE + GAP)
        parts += [label(x, TOP - 22, word), _legend(x, TOP - 8, senses, "small")]
        for layer in range(num_layers):
            points = project_to_plane(vectors[layer])
            parts += _panel(x, TOP + layer * (SIZE + GAP), points, senses)
    description = (
        "Circles and squares are occurrences of a word in its two senses. Layer 0 has no context, so that there all "
        f"occurrences of a word are one point. {_list_senses(words)}."
    )
    return picture(name, width, height, title=title, description=description, parts=parts, style=_STYLE)


def word_grid(name: str, words: Mapping[str, tuple[np.ndarray, Sequence[str]]], *, title: str) -> str:
    """A chart of the top layer only, with three words per row, narrow enough for a phone; `words` as in `word_map`."""
    step = (GRID_WIDTH - SIZE) / (GRID_COLUMNS - 1)
    num_rows = -(-len(words) // GRID_COLUMNS)
    parts = []
    for number, (word, (vectors, senses)) in enumerate(words.items()):
        row, column = divmod(number, GRID_COLUMNS)
        x, y = column * step, row * (GRID_HEAD + SIZE + GAP)
        parts += [label(x + 2, y + 16, word, kind="word"), _legend(x + 2, y + 34, senses, "senses")]
        parts += _panel(x, y + GRID_HEAD, project_to_plane(vectors[-1]), senses)
    description = f"Circles and squares are occurrences of a word in its two senses. {_list_senses(words)}."
    height = num_rows * (GRID_HEAD + SIZE + GAP)
    return picture(name, GRID_WIDTH, height, title=title, description=description, parts=parts, style=_STYLE)


def as_text(points: np.ndarray, labels: Sequence[str], width: int = 56, height: int = 13) -> list[str]:
    """The points (N, 2) in a frame of characters that each axis fills; a label that would overlap moves down."""
    grid = [[" "] * width for _ in range(height)]
    extent = np.abs(points).max(axis=0, initial=0.0)  # (2,)
    for (x, y), text in zip(points / np.where(extent > 0, extent, 1.0), labels, strict=True):
        column = round((x + 1) / 2 * (width - len(text)))
        row = round((1 - y) / 2 * (height - 1))
        places = [(r % height, column) for r in range(row, row + height)]
        row, column = next((place for place in places if _is_free(grid, *place, len(text))), places[0])
        grid[row][column : column + len(text)] = text
    return ["┌" + "─" * width + "┐", *("│" + "".join(line) + "│" for line in grid), "└" + "─" * width + "┘"]


def _is_free(grid: list[list[str]], row: int, column: int, length: int) -> bool:
    return all(cell == " " for cell in grid[row][max(0, column - 1) : column + length + 1])


def _list_senses(words: Mapping[str, tuple[np.ndarray, Sequence[str]]]) -> str:
    return "; ".join(f"{word}: {' and '.join(dict.fromkeys(senses))}" for word, (_, senses) in words.items())


def _legend(x: float, y: float, senses: Sequence[str], kind: str) -> str:
    """The two senses with their marks; `kind` is the CSS class of the text."""
    first, second = dict.fromkeys(senses)
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}"><tspan class="first">●</tspan> {escape(first)} '
        f'<tspan class="second">■</tspan> {escape(second)}</text>'
    )


def _panel(x: float, y: float, points: np.ndarray, senses: Sequence[str]) -> list[str]:
    parts = [f'<rect class="box" x="{x:g}" y="{y:g}" width="{SIZE}" height="{SIZE}" rx="4"/>']
    half, reach = SIZE / 2, SIZE / 2 - 10
    for (across, up), sense in zip(points, senses, strict=True):
        series, radius = ("first", 5) if sense == senses[0] else ("second", 4)
        parts.append(mark(series, x + half + across * reach, y + half - up * reach, radius))
    return parts
