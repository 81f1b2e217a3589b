"""Accuracy over pairs, and for each label how many of its pairs were found. The last step; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.snli.data import LABELS, Example
from elmo.text.metrics import Counts, check_lengths

METRIC = "accuracy"


def score(gold: Sequence[Example], predicted: Sequence[str]) -> dict[str, float]:
    """Percentages: accuracy (the one that counts), and accuracy_LABEL over the pairs whose gold label that is."""
    check_lengths(gold, predicted, "pairs")
    total = Counts()
    by_label = {label: Counts() for label in LABELS}
    for example, label in zip(gold, predicted, strict=True):
        if example.label is None:
            raise DataError("A pair has no gold label to score against.")
        for counts in (total, by_label[example.label]):
            counts.add(right=label == example.label, found=1)
    return {"accuracy": total.precision, **{f"accuracy_{label}": by_label[label].precision for label in LABELS}}
