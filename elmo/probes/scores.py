"""How good predicted tags are: accuracy, and F1 of whole spans as conlleval counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SpanScore:
    """Spans found, wanted and right; the three figures are in percent."""

    right: int
    found: int
    wanted: int

    @property
    def precision(self) -> float:
        return 100.0 * self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return 100.0 * self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        return 200.0 * self.right / (self.found + self.wanted) if self.found + self.wanted else 0.0


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """Percent of tags that agree."""
    if not gold:
        return 0.0
    return 100.0 * sum(p == g for p, g in zip(predicted, gold, strict=True)) / len(gold)


def spans(tags: Iterable[str]) -> list[tuple[int, int, str]]:
    """(first, past the last, type) of each span in one sentence's IOB2 tags, read as conlleval reads them.

    B- begins a span, and so does an I- that follows O or a span of another type: tags a classifier gives word by word
    need not be well formed.
    """
    found: list[tuple[int, int, str]] = []
    begin, kind = 0, ""
    place = -1
    for place, tag in enumerate(tags):
        mark, _, of = tag.partition("-")
        if kind and (mark != "I" or of != kind):
            found.append((begin, place, kind))
            kind = ""
        if mark in ("B", "I") and not kind:
            begin, kind = place, of
    if kind:
        found.append((begin, place + 1, kind))
    return found


def span_score(predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[str]]) -> SpanScore:
    """Exact spans of right type, counted over all sentences."""
    right = found = wanted = 0
    for guessed, true in zip(predicted, gold, strict=True):
        ours, theirs = set(spans(guessed)), set(spans(true))
        right += len(ours & theirs)
        found += len(ours)
        wanted += len(theirs)
    return SpanScore(right, found, wanted)
