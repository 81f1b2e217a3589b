"""Means over seeds told apart from chance: deviations pooled by hand, and Student's t for few seeds."""

from __future__ import annotations

import pytest
from sample_records import task_record

from elmo.report.run_groups import score
from elmo.report.significance import Noise, compare, noise_of, pooled, told_apart


def over_seeds(*values: float):
    return score([task_record(seed=seed, test=value) for seed, value in enumerate(values)])


def test_deviations_are_pooled_by_their_degrees_of_freedom():
    noise = pooled([(1.0, 3), (2.0, 2), (None, 1)])  # (1^2 * 2 + 2^2 * 1) / 3
    assert noise.freedom == 3
    assert noise.deviation == pytest.approx(2**0.5)
    assert pooled([(None, 1), (None, 1)]) is None
    assert pooled([]) is None


def test_two_figures_are_told_apart_beyond_what_chance_does():
    low, high = over_seeds(60.0, 61.0), over_seeds(64.0, 65.0)  # deviation 0.71 each, 2 degrees, t 4.30
    noise = noise_of([low, high, None])
    assert (compare(high, low, noise), compare(low, high, noise)) == (1, -1)  # 4 apart; 4.30 * 0.71 * 1 = 3.04
    near = over_seeds(63.0, 64.0)
    assert compare(near, low, noise) == 0  # 3 apart
    third = over_seeds(70.0, 71.0)  # one more group: 3 degrees, t 3.18, 2.25
    assert compare(near, low, noise_of([low, near, third])) == 1
    assert compare(low, None, noise) is None


def test_one_seed_each_tells_nothing_unless_others_say_how_far_runs_differ():
    one, other = over_seeds(60.0), over_seeds(70.0)
    assert compare(other, one, noise_of([one, other])) == 0
    assert compare(other, one, noise_of([one, other, over_seeds(50.0, 51.0, 52.0)])) == 1  # 4.30 * 1 * sqrt(2) = 6.1
    assert compare(other, one, noise_of([one, other, over_seeds(50.0, 52.0, 54.0)])) == 0  # 12.2


def test_runs_that_never_differ_are_told_apart_by_anything():
    assert told_apart(0.1, (2, 2), Noise(deviation=0.0, freedom=2)) == 1
    assert told_apart(0.0, (2, 2), Noise(deviation=0.0, freedom=2)) == 0


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.71), (10, 2.23), (20, 2.09), (60, 2.00)])
def test_t_is_that_of_the_tables(freedom, t):
    assert Noise(deviation=1.0, freedom=freedom).t == pytest.approx(t, abs=0.02)
