"""What the page opens with: Table 1 as bars, the paper's above ours, and the uses of words in the top layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elmo.charts.word_map import word_grid
from elmo.report.collect import RecordFile
from elmo.report.page import Picture, Section
from elmo.report.section_neighbours import can_be_drawn, demo_model, uses_of_words
from elmo.report.table1 import Row
from elmo.report.table1_formats import as_svg


def opening_section(rows: Sequence[Row], demos: Sequence[RecordFile]) -> Section | None:
    """The pictures that the records allow; None if there is none."""
    parts = [_gains(rows)] if rows else []
    drawable = [demo.values for demo in demos if demo.values.get("plane") and can_be_drawn(demo.values["plane"])]
    if drawable:
        parts.append(_words(drawable[0]))
    return Section(key="opening", title="At a glance", parts=parts) if parts else None


def _gains(rows: Sequence[Row]) -> Picture:
    gains = [row.absolute for row in rows if row.absolute is not None]
    ours = f"; ours are {min(gains):+.1f} to {max(gains):+.1f}" if gains else ""
    caption = (
        "What ELMo adds to each task of Table 1, in points: the paper's bar above ours. The paper's gains are "
        f"{min(row.paper.absolute for row in rows):+.1f} to {max(row.paper.absolute for row in rows):+.1f}{ours}. "
        "The line at the end of a bar is the deviation over seeds."
    )
    return Picture(name="six-tasks-picture", svg=as_svg(rows), caption=caption)


def _words(demo: Mapping[str, Any]) -> Picture:
    layers = list(demo["senses"].values())
    top, bottom = (sum(layer[at]["nearest"] for layer in layers) / len(layers) for at in (-1, 0))
    caption = (
        f"Words in context ({demo_model(demo)}, top layer): a mark is one use of the word, and its shape is the sense, "
        f"which the projection does not know. The nearest other use has the same sense in {100 * top:.0f}% of the uses "
        f"and in {100 * bottom:.0f}% without context (layer 0)."
    )
    svg = word_grid("words-top-layer", uses_of_words(demo["plane"]), title="Uses of words in two senses, top layer")
    return Picture(name="words-top-layer", svg=svg, caption=caption)
