"""Right, found and wanted: precision, recall and F1 in percent, as every scorer of spans reports them."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass

from elmo.errors import DataError


@dataclass(kw_only=True)
class Counts:
    """How many things were wanted, how many were found, and how many of the found were right."""

    right: float = 0
    found: float = 0
    wanted: float = 0

    def add(self, *, right: float = 0, found: float = 0, wanted: float = 0) -> None:
        self.right += right
        self.found += found
        self.wanted += wanted

    @property
    def precision(self) -> float:
        return 100 * self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return 100 * self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        return harmonic(self.precision, self.recall)


def harmonic(precision: float, recall: float) -> float:
    """F1; zero where both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def check_lengths(gold: Sized, predicted: Sized, what: str) -> None:
    """A DataError where there is not one prediction for each gold item."""
    if len(gold) != len(predicted):
        raise DataError(f"There are {len(predicted):,} predictions for {len(gold):,} {what}; expected one for each.")
