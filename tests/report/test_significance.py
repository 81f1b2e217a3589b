"""Significant differences between means over seeds: pooled deviations worked by hand, Student's t for few seeds."""

from __future__ import annotations

import pytest
from sample_records import task_record

from elmo.report.run_groups import score
from elmo.report.significance import PooledDeviation, compare, pool_deviations, pool_scores, significant_sign


def over_seeds(*values: float):
    return score([task_record(seed=seed, test=value) for seed, value in enumerate(values)])


def test_deviations_are_pooled_by_their_degrees_of_freedom():
    pooled = pool_deviations([(1.0, 3), (2.0, 2), (None, 1)])  # (1^2 * 2 + 2^2 * 1) / 3
    assert pooled.degrees_of_freedom == 3
    assert pooled.deviation == pytest.approx(2**0.5)
    assert pool_deviations([(None, 1), (None, 1)]) is None
    assert pool_deviations([]) is None


def test_a_difference_above_the_critical_value_is_significant():
    low, high = over_seeds(60.0, 61.0), over_seeds(64.0, 65.0)  # deviation 0.71 each, 2 degrees, t 4.30
    pooled = pool_scores([low, high, None])
    assert (compare(high, low, pooled), compare(low, high, pooled)) == (1, -1)  # 4 apart; 4.30 * 0.71 * 1 = 3.04
    near = over_seeds(63.0, 64.0)
    assert compare(near, low, pooled) == 0  # 3 apart
    third = over_seeds(70.0, 71.0)  # one more group: 3 degrees, t 3.18, 2.25
    assert compare(near, low, pool_scores([low, near, third])) == 1
    assert compare(low, None, pooled) is None


def test_single_seeds_are_compared_only_with_the_deviation_of_other_groups():
    one, other = over_seeds(60.0), over_seeds(70.0)
    assert compare(other, one, pool_scores([one, other])) == 0
    assert compare(other, one, pool_scores([one, other, over_seeds(50.0, 51.0, 52.0)])) == 1  # 4.30 * 1 * sqrt(2) = 6.1
    assert compare(other, one, pool_scores([one, other, over_seeds(50.0, 52.0, 54.0)])) == 0  # 12.2


def test_without_deviation_every_difference_is_significant():
    assert significant_sign(0.1, (2, 2), PooledDeviation(deviation=0.0, degrees_of_freedom=2)) == 1
    assert significant_sign(0.0, (2, 2), PooledDeviation(deviation=0.0, degrees_of_freedom=2)) == 0


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.71), (10, 2.23), (20, 2.09), (60, 2.00)])
def test_t_is_the_critical_value_of_the_tables(freedom, t):
    assert PooledDeviation(deviation=1.0, degrees_of_freedom=freedom).t == pytest.approx(t, abs=0.02)
