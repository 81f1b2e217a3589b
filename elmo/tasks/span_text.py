"""Formats a sentence with labelled spans, as text segments and as JSON. Used by ner and srl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from elmo.tasks.task import Segment
from elmo.text.spans import Span


def span_segments(tokens: Sequence[str], spans: Iterable[Span]) -> list[Segment]:
    """The tokens in order; each span (in order, not nested) is a segment with its label."""
    segments: list[Segment] = []
    end = 0
    for span in spans:
        segments += [Segment(" ".join(tokens[end : span.first]))] if span.first > end else []
        segments.append(Segment(span_text(tokens, span), span.label))
        end = span.last + 1
    return segments + ([Segment(" ".join(tokens[end:]))] if end < len(tokens) else [])


def span_json(tokens: Sequence[str], span: Span, label_key: str) -> dict[str, Any]:
    """A span as plain values; `label_key` is the key of its label."""
    return {label_key: span.label, "first": span.first, "last": span.last, "text": span_text(tokens, span)}


def span_text(tokens: Sequence[str], span: Span) -> str:
    """The tokens of a span with spaces between them."""
    return " ".join(tokens[span.first : span.last + 1])
