"""Figure 1 from hand-made records: shares, deviations, and the updates that ELMo saves."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from sample_records import full_set, task_record

from elmo.report.collect import Records
from elmo.report.results import compute_results
from elmo.report.sample_efficiency import (
    as_markdown,
    as_svg,
    as_text,
    as_values,
    cells,
    sample_efficiency,
    update_reaching,
)


def pair_of_runs(share, seed, without, with_, **settings):
    return [
        task_record(elmo=False, share=share, seed=seed, updates=without, dev=max(d for _, d in without), **settings),
        task_record(share=share, seed=seed, updates=with_, dev=max(d for _, d in with_), **settings),
    ]


def test_updates_saved_are_counted_seed_by_seed():
    records = [
        *pair_of_runs(0.1, 0, [(100, 20.0), (400, 30.0), (500, 29.0)], [(100, 31.0), (200, 40.0)]),
        *pair_of_runs(0.1, 1, [(100, 10.0), (200, 50.0)], [(50, 20.0), (100, 45.0)]),  # never gets to 50
        *pair_of_runs(1.0, 0, [(1000, 60.0)], [(100, 55.0), (250, 60.0)]),
    ]
    (one,) = sample_efficiency(records)
    small, whole = one.shares
    assert (small.reach.baseline, small.reach.elmo, small.reach.reached, small.reach.seeds) == (300, 100, 1, 2)
    assert (small.reach.sooner, whole.reach.sooner) == (1, 1)
    assert small.reach.fewer is None, "the seed that never got there would not be counted"
    assert whole.reach.fewer == pytest.approx(75)
    assert "(1 of 2 seeds)" in cells(small)[6]
    assert cells(whole)[5:] == ("1,000", "250", "75%")


def test_the_updates_saved_are_those_of_the_runs_with_most_seeds_on_the_whole_file():
    curve = [run for share in (0.1, 1.0) for run in pair_of_runs(share, 0, [(100, 50.0)], [(60, 50.0)], dropout=0.9)]
    main = [run for seed in (0, 1) for run in pair_of_runs(1.0, seed, [(100, 50.0)], [(20, 50.0)])]
    results = compute_results(Records(tasks=[*curve, *main]))
    assert [s.share for one in results.efficiency for s in one.shares] == [0.1, 1.0]
    (saved,) = results.updates
    assert saved.largest.reach.seeds == 2
    assert saved.largest.reach.fewer == pytest.approx(80)


def test_of_two_sets_with_as_many_runs_the_one_with_the_better_dev_score_is_shown_in_any_order():
    low = pair_of_runs(1.0, 0, [(100, 50.0)], [(60, 55.0)], dropout=0.9)
    high = pair_of_runs(1.0, 0, [(100, 50.0)], [(20, 60.0)])
    for records in ([*low, *high], [*high, *low]):
        (saved,) = compute_results(Records(tasks=records)).updates
        assert saved.largest.reach.fewer == pytest.approx(80)


def test_a_share_with_both_sides_is_compared_if_the_whole_file_has_one():
    records = [*pair_of_runs(0.1, 0, [(100, 50.0)], [(60, 50.0)]), *pair_of_runs(1.0, 0, [(9, 50.0)], [(3, 50.0)])[:1]]
    (saved,) = compute_results(Records(tasks=records)).updates
    assert (saved.largest.share, saved.largest.reach.fewer) == (0.1, pytest.approx(40))


def test_a_share_is_compared_if_the_whole_file_was_of_each_side_is_another():
    whole = [pair_of_runs(1.0, 0, [(9, 50.0)], [(3, 50.0)], sha=sha)[side] for side, sha in enumerate("xy")]
    records = [*pair_of_runs(0.1, 0, [(100, 50.0)], [(60, 50.0)]), *whole]
    (saved,) = compute_results(Records(tasks=records)).updates
    assert (saved.largest.share, saved.largest.reach.fewer) == (0.1, pytest.approx(40))


def test_a_baseline_that_learned_nothing_is_not_compared():
    records = [*pair_of_runs(0.1, 0, [(10, 0.0)], [(10, 0.0)]), *pair_of_runs(1.0, 0, [(10, 5.0)], [(10, 4.0)])]
    (one,) = sample_efficiency(records)
    assert one.shares[0].reach is None
    assert cells(one.shares[1])[6:] == ("not reached", "-")
    assert update_reaching(records[0], 99.0) is None


def test_epochs_and_patience_may_differ_between_shares_but_nothing_else():
    records = [*pair_of_runs(0.1, 0, [(1, 5.0)], [(1, 6.0)], epochs=99), *pair_of_runs(1.0, 0, [(1, 7.0)], [(1, 8.0)])]
    assert [s.share for s in sample_efficiency(records)[0].shares] == [0.1, 1.0]
    other = [*pair_of_runs(0.1, 0, [(1, 5.0)], [(1, 6.0)], dropout=0.9), *pair_of_runs(1.0, 0, [(1, 7.0)], [(1, 8.0)])]
    assert sample_efficiency(other) == []  # with ELMo there is one share of each
    assert sample_efficiency([]) == []
    (alone,) = sample_efficiency(pair_of_runs(1.0, 0, [(8, 7.0)], [(2, 8.0)]), least_shares=1)
    assert alone.largest.reach.fewer == pytest.approx(75)


def test_scores_are_on_test_if_all_runs_have_it():
    records = full_set()
    ner = next(one for one in sample_efficiency(records) if one.task == "ner")
    assert ner.split == "test"
    assert [s.share for s in ner.shares] == [0.01, 0.1, 1.0]
    assert ner.shares[0].baseline.mean == pytest.approx(32.5)  # 30 + 2 + mean of the seeds 0 and 1
    assert ner.shares[0].elmo.mean == pytest.approx(42.5)
    without_test = [dict(r, test=None) for r in records]
    assert sample_efficiency(without_test)[0].split == "dev"


def test_picture_and_tables_agree():
    one = sample_efficiency(full_set())[0]
    picture = ET.fromstring(as_svg(one))
    words = " ".join(element.text or "" for element in picture.iter())
    assert "32.5 ± 0.71 at 1%" in words
    assert picture.get("role") == "img"
    names = {element.get("id") for element in picture.iter()}
    assert set(picture.get("aria-labelledby").split()) <= names
    assert len(picture.findall("{*}polyline")) == 2
    assert len(picture.findall("{*}polygon")) == 2
    assert "32.50 ± 0.71" in as_text(one)
    assert as_markdown(one).count("\n| ") == 5
    assert json.loads(json.dumps(as_values(one)))["shares"][0]["share"] == 0.01
