"""Accuracy over sentences in five classes, and in two where the gold label is not neutral. The last step; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.sst.data import Example
from elmo.text.metrics import Counts, check_lengths

METRIC = "accuracy"
_NEUTRAL = 2


def score(gold: Sequence[Example], predicted: Sequence[int]) -> dict[str, float]:
    """Percentages: accuracy (the one that counts); binary_accuracy: the right side, neutral gold sentences left out.

    A neutral prediction for a sentence that is not neutral is wrong in both.
    """
    check_lengths(gold, predicted, "sentences")
    five, two = Counts(), Counts()
    for example, label in zip(gold, predicted, strict=True):
        if example.label is None:
            raise DataError("A sentence has no gold label to score against.")
        five.add(right=label == example.label, found=1)
        if example.label != _NEUTRAL:
            same_side = (label - _NEUTRAL) * (example.label - _NEUTRAL) > 0
            two.add(right=same_side, found=1)
    return {"accuracy": five.precision, "binary_accuracy": two.precision}
