"""Scorer of the snli task: accuracy over all pairs, and over the pairs of each gold label. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.snli.data import LABELS, Example
from elmo.text.metrics import ScoreCounts, check_lengths

METRIC = "accuracy"


def score(gold: Sequence[Example], predicted: Sequence[str]) -> dict[str, float]:
    """Percentages: accuracy (the main metric), and accuracy_LABEL over the pairs with this gold label."""
    check_lengths(gold, predicted, "pairs")
    total = ScoreCounts()
    by_label = {label: ScoreCounts() for label in LABELS}
    for example, label in zip(gold, predicted, strict=True):
        if example.label is None:
            raise DataError("A pair has no gold label to score against.")
        for counts in (total, by_label[example.label]):
            counts.add(correct=label == example.label, predicted=1)
    return {"accuracy": total.precision, **{f"accuracy_{label}": by_label[label].precision for label in LABELS}}
