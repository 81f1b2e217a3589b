"""Precision, recall, F1 and accuracy in percent, and span F1 as conlleval computes it. For task scorers and probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass

from elmo.errors import DataError
from elmo.text.spans import Span, spans_of_tags


@dataclass(kw_only=True)
class ScoreCounts:
    """Numbers of gold items, of predicted items, and of predicted items that are correct.

    For an accuracy only `correct` and `predicted` are counted; it is then the precision.
    """

    correct: float = 0
    predicted: float = 0
    gold: float = 0

    def add(self, *, correct: float = 0, predicted: float = 0, gold: float = 0) -> None:
        """Adds the counts of one more example."""
        self.correct += correct
        self.predicted += predicted
        self.gold += gold

    @property
    def precision(self) -> float:
        return 100 * self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return 100 * self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return harmonic_mean(self.precision, self.recall)


def harmonic_mean(precision: float, recall: float) -> float:
    """F1 of a precision and a recall; zero if both are zero."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Percentage of labels that agree; zero for empty sequences."""
    if not gold:
        return 0.0
    return 100.0 * sum(g == p for g, p in zip(gold, predicted, strict=True)) / len(gold)


def span_counts(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> ScoreCounts:
    """Counts over all sentences of the spans that the tags mark.

    A predicted span is correct if its label, first token and last token are correct.
    """
    counts = ScoreCounts()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        add_spans(counts, set(spans_of_tags(gold_tags)), set(spans_of_tags(predicted_tags)))
    return counts


def add_spans(counts: ScoreCounts, gold: set[Span], predicted: set[Span]) -> None:
    """Adds the spans of one sentence to the counts."""
    counts.add(correct=len(gold & predicted), predicted=len(predicted), gold=len(gold))


def check_lengths(gold: Sized, predicted: Sized, items: str) -> None:
    """Raises a DataError unless there is one prediction per gold item; `items` names the items in the message."""
    if len(gold) != len(predicted):
        raise DataError(f"There are {len(predicted):,} predictions for {len(gold):,} {items}; expected one for each.")
