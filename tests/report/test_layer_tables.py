"""Tables 2 and 3 from hand-made records: which runs belong to which column, and which of several sets is shown."""

from __future__ import annotations

import json

import pytest
from sample_records import task_record

from elmo.report.layer_tables import LAYERS, PLACES, as_markdown, as_text, as_values, make_rows
from elmo.report.run_groups import group_runs, score, settings_key


def one_run_per_column(**settings):
    return [
        task_record(elmo=False, dev=50, **settings),
        task_record(layers="top", dev=60, **settings),
        task_record(penalty=1.0, dev=61, **settings),
        task_record(penalty=0.001, dev=62, **settings),
    ]


def test_the_four_columns_are_found_by_their_settings():
    (row,) = make_rows(LAYERS, one_run_per_column())
    assert [s.mean for s in row.ours] == [50, 60, 61, 62]
    assert row.paper is None
    assert row.share == 1


def test_seeds_become_mean_and_deviation_of_the_sample():
    records = [*one_run_per_column(seed=0), task_record(seed=1, penalty=0.001, dev=66)]
    (row,) = make_rows(LAYERS, [*records, records[-1]])  # run twice: counts once
    assert row.ours[3].mean == 64
    assert row.ours[3].deviation == pytest.approx(8**0.5)  # (2^2 + 2^2) / 1
    assert row.ours[3].seeds == (0, 1)
    assert row.ours[0].deviation is None
    assert str(row.ours[3]) == "64.00 ± 2.83"


def test_a_run_that_differs_elsewhere_is_not_mixed_in():
    other = task_record(penalty=0.001, dev=99, dropout=0.1)
    (row,) = make_rows(LAYERS, [*one_run_per_column(), other])
    assert row.ours[3].mean == 62
    tuned_longer = task_record(elmo=False, dev=99, epochs=500)
    assert make_rows(LAYERS, [*one_run_per_column()[1:], tuned_longer])[0].ours[0] is None


def test_another_lambda_has_no_column_and_a_single_column_gives_no_row():
    assert make_rows(LAYERS, [task_record(elmo=False), task_record(penalty=0.1)]) == []
    assert make_rows(PLACES, one_run_per_column()) == []


def test_places_are_compared_with_everything_else_equal():
    records = [
        task_record(place=place, dev=d, task="srl") for place, d in (("input", 84), ("both", 83), ("output", 80))
    ]
    (row,) = make_rows(PLACES, [*records, task_record(task="srl", layers="top", dev=99), *one_run_per_column()])
    assert [s.mean for s in row.ours] == [84, 83, 80]
    assert row.paper == (84.7, 84.3, 80.9)


def test_the_whole_file_counts_before_a_share_of_it():
    small, whole = one_run_per_column(share=0.1), [dict(r, dev={"f1": 10.0}) for r in one_run_per_column()]
    (row,) = make_rows(LAYERS, [*small, *whole])
    assert row.ours[0].mean == 10
    assert "10 percent" in as_text(LAYERS, make_rows(LAYERS, small))
    assert "NER 1, 1, 1, 1." in as_text(LAYERS, make_rows(LAYERS, small)), "how many seeds each column has"


def test_device_cache_and_a_baselines_elmo_settings_do_not_separate_runs():
    one, two = task_record(elmo=False), task_record(elmo=False, place="output", penalty=1.0, seed=1)
    two["config"]["train"]["device"] = "cuda"
    two["config"]["elmo"]["cache"] = "disk"
    assert settings_key(one) == settings_key(two)
    assert len(group_runs([one, two])) == 1
    other_model = task_record()
    other_model["elmo"] = {"model": "default", "sha256": "another"}
    assert settings_key(task_record()) != settings_key(other_model)


def test_a_record_without_a_newer_setting_is_grouped_with_its_default():
    older, newer = task_record(seed=0), task_record(seed=1)
    newer["config"]["train"]["validate_after"] = 0
    assert settings_key(older) == settings_key(newer)
    newer["config"]["train"]["validate_after"] = 60
    assert settings_key(older) != settings_key(newer)
    assert settings_key(older, ignore=["train.validate_after"]) == settings_key(newer, ignore=["train.validate_after"])


def test_text_markdown_and_values_agree():
    rows = make_rows(LAYERS, [dict(r, task="srl") for r in one_run_per_column()])
    text, markdown = as_text(LAYERS, rows), as_markdown(LAYERS, rows)
    for figure in ("81.6", "84.8", "50.00", "62.00"):
        assert figure in text
        assert figure in markdown
    assert len({len(line) for line in text.splitlines()[1:4]}) == 1
    values = json.loads(json.dumps(as_values(LAYERS, rows)))
    assert values["rows"][0]["ours"][1]["mean"] == 60
    assert score(one_run_per_column()[:1], split="dev").values == (50.0,)
