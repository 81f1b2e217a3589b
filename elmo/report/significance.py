"""Whether the difference between two means over seeds is significant, by Student's t test at the 5 percent level.

Two or three seeds estimate the variance between runs poorly, so the variance is pooled over all groups of runs that
differ only in the seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from elmo.report.run_groups import Score

_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # 95 percent, for 1 to 10 degrees of freedom


@dataclass(frozen=True, kw_only=True)
class PooledDeviation:
    """The standard deviation of a single run, and the degrees of freedom of this estimate."""

    deviation: float
    degrees_of_freedom: int

    @property
    def t(self) -> float:
        """The critical value of t: equal means differ by more standard errors than this in 5 percent of cases."""
        freedom = self.degrees_of_freedom
        return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.8 / freedom


def pool_deviations(groups: Iterable[tuple[float | None, int]]) -> PooledDeviation | None:
    """The pooled deviation of groups, each (deviation, number of seeds); None if every group has a single seed."""
    several = [(deviation, count) for deviation, count in groups if deviation is not None]
    freedom = sum(count - 1 for _, count in several)
    if not freedom:
        return None
    variance = sum(deviation * deviation * (count - 1) for deviation, count in several) / freedom
    return PooledDeviation(deviation=math.sqrt(variance), degrees_of_freedom=freedom)


def pool_scores(scores: Iterable[Score | None]) -> PooledDeviation | None:
    """The pooled deviation of scores; None if every score has a single seed."""
    return pool_deviations((score.deviation, len(score.values)) for score in scores if score is not None)


def significant_sign(difference: float, counts: tuple[int, int], pooled: PooledDeviation | None) -> int:
    """The sign of a difference between two means over `counts` seeds; 0 if it is not significant or not testable."""
    if pooled is None:
        return 0
    threshold = pooled.t * pooled.deviation * math.sqrt(sum(1 / count for count in counts))
    return 0 if abs(difference) <= threshold else 1 if difference > 0 else -1


def compare(one: Score | None, other: Score | None, pooled: PooledDeviation | None) -> int | None:
    """1 if `one` is significantly better, -1 if worse, 0 without significant difference; None if a score is missing."""
    if one is None or other is None:
        return None
    return significant_sign(one.mean - other.mean, (len(one.values), len(other.values)), pooled)
