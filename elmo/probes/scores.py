"""How good predicted tags are: accuracy, and F1 of whole spans as conlleval counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elmo.text.spans import spans_of_tags


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


def span_score(predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[str]]) -> SpanScore:
    """Exact spans of right type, counted over all sentences."""
    right = found = wanted = 0
    for guessed, true in zip(predicted, gold, strict=True):
        ours, theirs = set(spans_of_tags(guessed)), set(spans_of_tags(true))
        right += len(ours & theirs)
        found += len(ours)
        wanted += len(theirs)
    return SpanScore(right, found, wanted)
