"""A sentence with spans marked in it, for people and for machines: what ner and srl print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from elmo.tasks.task import Piece
from elmo.text.spans import Span


def marked_text(tokens: Sequence[str], spans: Iterable[Span]) -> list[Piece]:
    """The tokens in order, those of each span (in order, none inside another) under its label."""
    pieces: list[Piece] = []
    end = 0
    for span in spans:
        pieces += [Piece(" ".join(tokens[end : span.first]))] if span.first > end else []
        pieces.append(Piece(words_of(tokens, span), span.label))
        end = span.last + 1
    return pieces + ([Piece(" ".join(tokens[end:]))] if end < len(tokens) else [])


def span_json(tokens: Sequence[str], span: Span, kind: str) -> dict[str, Any]:
    """A span as plain values; `kind` is what its label is called there."""
    return {kind: span.label, "first": span.first, "last": span.last, "text": words_of(tokens, span)}


def words_of(tokens: Sequence[str], span: Span) -> str:
    return " ".join(tokens[span.first : span.last + 1])
