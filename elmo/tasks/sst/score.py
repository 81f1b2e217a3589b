"""Scorer of the sst task: accuracy over sentences in five classes, and in two classes without neutral. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.sst.data import Example
from elmo.text.metrics import ScoreCounts, check_lengths

METRIC = "accuracy"
_NEUTRAL = 2


def score(gold: Sequence[Example], predicted: Sequence[int]) -> dict[str, float]:
    """Percentages: accuracy in five classes (the main metric), and binary_accuracy, positive against negative.

    binary_accuracy skips sentences whose gold label is neutral. A neutral prediction for another sentence is wrong in
    both.
    """
    check_lengths(gold, predicted, "sentences")
    five_classes, two_classes = ScoreCounts(), ScoreCounts()
    for example, label in zip(gold, predicted, strict=True):
        if example.label is None:
            raise DataError("A sentence has no gold label to score against.")
        five_classes.add(correct=label == example.label, predicted=1)
        if example.label != _NEUTRAL:
            same_polarity = (label - _NEUTRAL) * (example.label - _NEUTRAL) > 0
            two_classes.add(correct=same_polarity, predicted=1)
    return {"accuracy": five_classes.precision, "binary_accuracy": two_classes.precision}
