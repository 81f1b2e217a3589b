"""Converts IOB tags to labelled spans and back; used by ner, srl and the linear probes.

IOB1, IOB2, IOBES and BILOU tags are read by the rules of conlleval: a span begins at B, S or U, or where the label
changes; it ends at E, L, S or U, or where the next span begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

TAG = re.compile(r"O|[BIESLU]-\S+")


class Span(NamedTuple):
    """Tokens first to last, both included, and their label."""

    label: str
    first: int
    last: int


def spans_of_tags(tags: Sequence[str]) -> list[Span]:
    """The spans that tags of any of these schemes mark, in order."""
    spans: list[Span] = []
    first = 0
    last_prefix, last_label = "O", ""
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, label = tag.partition("-")
        changed = label != last_label
        if last_prefix != "O" and (last_prefix in "ESLU" or prefix in "BSUO" or changed):
            spans.append(Span(last_label, first, position - 1))
        if prefix != "O" and (prefix in "BSU" or last_prefix in "OESLU" or changed):
            first = position
        last_prefix, last_label = prefix, label
    return spans


def tags_of_spans(spans: Iterable[tuple[str, int, int]], length: int) -> tuple[str, ...]:
    """IOB2 tags of `length` tokens from spans (label, first, last) that do not overlap."""
    tags = ["O"] * length
    for label, first, last in spans:
        tags[first] = f"B-{label}"
        for position in range(first + 1, last + 1):
            tags[position] = f"I-{label}"
    return tuple(tags)
