"""Spans in tags and back: B-X opens a span, I-X goes on, O is outside. For ner, srl and the linear probes.

IOB1, IOB2, IOBES and BILOU are all understood, by the rules of conlleval: a span begins at B, S or U, or where the kind
changes; it ends at E, L, S or U, or where the next one begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

TAG = re.compile(r"O|[BIESLU]-\S+")


class Span(NamedTuple):
    """Tokens first to last, both included, and what they are."""

    label: str
    first: int
    last: int


def spans_of_tags(tags: Sequence[str]) -> list[Span]:
    """The spans that tags of any scheme mark, in order."""
    spans: list[Span] = []
    first = 0
    before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        changed = kind != kind_before
        if before != "O" and (before in "ESLU" or prefix in "BSUO" or changed):
            spans.append(Span(kind_before, first, place - 1))
        if prefix != "O" and (prefix in "BSU" or before in "OESLU" or changed):
            first = place
        before, kind_before = prefix, kind
    return spans


def tags_of_spans(spans: Iterable[tuple[str, int, int]], length: int) -> tuple[str, ...]:
    """IOB2 tags of spans (label, first, last) that do not overlap."""
    tags = ["O"] * length
    for label, first, last in spans:
        tags[first] = f"B-{label}"
        for place in range(first + 1, last + 1):
            tags[place] = f"I-{label}"
    return tuple(tags)
