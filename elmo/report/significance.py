"""Whether two figures over seeds can be told apart: their difference against its standard error, by Student's t.

How far runs differ by chance is pooled over groups of runs that differ in the seed alone, for two or three seeds say
little about it by themselves. Stands between the scores of runs and what is said of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from elmo.report.run_groups import Score

_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # 95 percent, for 1 to 10 degrees of freedom


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The deviation of a single run, and how many degrees of freedom it was estimated with."""

    deviation: float
    freedom: int

    @property
    def t(self) -> float:
        """How many standard errors a difference of chance alone exceeds once in twenty times."""
        return _T[self.freedom - 1] if self.freedom <= len(_T) else 1.96 + 2.8 / self.freedom


def pooled(groups: Iterable[tuple[float | None, int]]) -> Noise | None:
    """From (deviation, seeds) of each group; None where every group has a single seed."""
    known = [(spread, count) for spread, count in groups if spread is not None]
    freedom = sum(count - 1 for _, count in known)
    if not freedom:
        return None
    return Noise(deviation=math.sqrt(sum(s * s * (n - 1) for s, n in known) / freedom), freedom=freedom)


def told_apart(gap: float, counts: tuple[int, int], noise: Noise | None) -> int:
    """The sign of a difference between means over so many seeds, or 0: chance may have made it, or nobody can tell."""
    if noise is None:
        return 0
    least = noise.t * noise.deviation * math.sqrt(sum(1 / count for count in counts))
    return 0 if abs(gap) <= least else 1 if gap > 0 else -1


def noise_of(scores: Iterable[Score | None]) -> Noise | None:
    return pooled((score.deviation, len(score.values)) for score in scores if score is not None)


def compare(one: Score | None, other: Score | None, noise: Noise | None) -> int | None:
    """1 where `one` is better, -1 where it is worse, 0 where they are not told apart; None without both."""
    if one is None or other is None:
        return None
    return told_apart(one.mean - other.mean, (len(one.values), len(other.values)), noise)
