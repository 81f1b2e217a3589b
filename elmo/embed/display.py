"""How results are shown: a sentence's layers as text and as HTML for notebooks, and rows of search results as HTML.

The HTML has no scripts, all texts in it are escaped, and its colours follow those of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

MOST_ROWS = 100  # tokens of a table; the note below it says how many there are
_BARS, _BAR_WIDTH, _HEIGHT = 32, 3, 24  # of the small chart of a vector, in pixels
_CELL = "padding:1px 8px;text-align:left;vertical-align:middle"


@dataclass(frozen=True, repr=False)
class SentenceLayers:
    """All layers of a sentence (L+1, n, D) with its n tokens; a notebook shows them as a table, tokens by layers."""

    tokens: list[str]
    layers: np.ndarray  # (L+1, n, D)

    @property
    def lengths(self) -> np.ndarray:
        """The length (Euclidean norm) of each vector, (L+1, n)."""
        lengths: np.ndarray = np.linalg.norm(self.layers.astype(np.float32), axis=-1)
        return lengths

    def __repr__(self) -> str:
        """A table of the lengths of the vectors, one line per token."""
        width = max(map(len, self.tokens[:MOST_ROWS]), default=0)
        columns = "".join(f"{name:>10}" for name in self._layer_names())
        lines = [f"{self._summary()}; lengths of vectors:", " " * width + columns]
        for token, lengths in zip(self.tokens[:MOST_ROWS], self.lengths.T, strict=False):
            lines.append(f"{token:{width}}" + "".join(f"{length:10.2f}" for length in lengths))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The table for notebooks: a chart of each vector, the mean of its numbers in 32 groups, and its length."""
        largest = [float(np.abs(_group_means(layer)).max(initial=0)) or 1.0 for layer in self.layers]
        rows = []
        for number, token in enumerate(self.tokens[:MOST_ROWS]):
            cells = [escape(token)]
            for layer, scale, lengths in zip(self.layers, largest, self.lengths, strict=True):
                length = f"{lengths[number]:.2f}"
                cells.append(f"{_vector_chart(_group_means(layer[number]) / scale, f'length {length}')} {length}")
            rows.append(cells)
        table = html_table(["token", *self._layer_names()], rows)
        note = "Each chart shows a vector, averaged in groups of neighbouring numbers; beside it is its length."
        return f"<div>{table}<p>{self._summary()}. {note}</p></div>"

    def _layer_names(self) -> list[str]:
        return [f"layer {number}" for number in range(len(self.layers))]

    def _summary(self) -> str:
        num_layers, num_tokens, dim = self.layers.shape
        shown = f", of which {MOST_ROWS} are shown" if num_tokens > MOST_ROWS else ""
        return f"{num_tokens:,} tokens{shown}, {num_layers} layers of {dim}"


def marked_sentence(tokens: Sequence[str], position: int) -> str:
    """A sentence as HTML with one of its tokens in bold."""
    words = [escape(token) for token in tokens]
    words[position] = f"<b>{words[position]}</b>"
    return " ".join(words)


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f'<th style="{_CELL}">{escape(column)}</th>' for column in columns)
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _group_means(vectors: np.ndarray) -> np.ndarray:
    """(..., D) to (..., 32): means of neighbouring numbers; a narrower vector keeps its numbers."""
    groups = np.array_split(vectors.astype(np.float32), min(_BARS, vectors.shape[-1]), axis=-1)
    return np.stack([group.mean(axis=-1) for group in groups], axis=-1)


def _vector_chart(values: np.ndarray, label: str) -> str:
    """An SVG of one bar per value between -1 and 1, up or down from the middle, in the colour of the text."""
    middle = _HEIGHT / 2
    heights = np.round(-np.nan_to_num(values) * middle, 1)
    bars = "".join(
        f"M{number * _BAR_WIDTH} {middle:g}v{height:g}h{_BAR_WIDTH - 1}v{-height:g}z"
        for number, height in enumerate(heights.tolist())
    )
    size = f'width="{len(values) * _BAR_WIDTH}" height="{_HEIGHT}"'
    title = f"<title>{escape(label)}</title>"
    return f'<svg {size} role="img" style="vertical-align:middle">{title}<path fill="currentColor" d="{bars}"/></svg>'
