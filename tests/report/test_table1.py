"""Table 1 from records: arithmetic by hand, which runs count, and its four formats."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ET

import pytest

from elmo.report.run_groups import group_runs
from elmo.report.table1 import PUBLISHED, make_table
from elmo.report.table1_formats import as_markdown, as_svg, as_text, as_values


def record(task="ner", seed=0, test=80.0, dev=70.0, elmo=False, metric="f1", fraction=1.0, lr=0.001, sha="a"):
    return {
        "task": task,
        "metric": metric,
        "seed": seed,
        "config": {
            "task": task,
            "data": {"train": "t", "dev": "d", "test": None, "fraction": fraction},
            "words": {"vectors": None, "dim": 100},
            "elmo": {"mode": "frozen" if elmo else "none", "model": "m", "cache": "memory", "cache_dir": None},
            "optim": {"lr": lr},
            "train": {"seed": seed, "device": "cpu", "precision": "auto"},
        },
        "data": {"train": {"sha256": sha}, "dev": {"sha256": "b"}},
        "elmo": {"model": "m", "sha256": "c"} if elmo else None,
        "vectors": None,
        "dev": {metric: dev},
        "test": None if test is None else {metric: test},
        "path": f"{task}/{elmo}/{lr}/{fraction}/{seed}",
    }


def test_means_deviations_and_error_reductions_by_hand():
    records = [record(seed=s, test=t) for s, t in enumerate((79.0, 80.0, 81.0))]
    records += [record(seed=s, test=t, elmo=True) for s, t in enumerate((84.0, 86.0))]
    (row,) = make_table(records)
    assert row.baseline.mean == pytest.approx(80)
    assert row.baseline.deviation == pytest.approx(1)  # of three: sqrt((1 + 0 + 1) / 2)
    assert row.elmo.deviation == pytest.approx(2**0.5)
    assert row.absolute == pytest.approx(5)
    assert row.relative == pytest.approx(25)  # 5 of the 20 points of error
    assert row.same_data
    assert row.baseline.seeds == (0, 1, 2)


@pytest.mark.parametrize("task", PUBLISHED)
def test_the_papers_own_reductions_agree_with_its_figures(task):
    paper = PUBLISHED[task]
    assert paper.elmo - paper.baseline == pytest.approx(paper.absolute, abs=0.02)
    # the paper rounds its figures before or after: within a point of its percentage
    assert 100 * paper.absolute / (100 - paper.baseline) == pytest.approx(paper.relative, abs=0.3)


def test_dev_chooses_among_settings_with_equally_many_seeds():
    low = [record(seed=s, dev=60, test=99, lr=0.1) for s in (0, 1)]
    high = [record(seed=s, dev=65, test=50, lr=0.2) for s in (0, 1)]
    lucky = [record(seed=0, dev=90, test=10, lr=0.3)]
    (row,) = make_table([*low, *high, *lucky])
    assert row.baseline.mean == 50
    assert row.elmo is None
    assert row.absolute is None
    assert row.relative is None


def test_shares_of_the_data_and_repeated_seeds_do_not_count():
    records = [record(), record(fraction=0.1, test=5.0), {**record(), "path": "copy"}]
    (row,) = make_table(records)
    assert row.baseline.mean == 80
    assert row.baseline.seeds == (0,)
    assert row.baseline.deviation is None


def test_device_cache_and_a_baselines_elmo_settings_do_not_separate_runs():
    one, two = record(seed=0), record(seed=1)
    two["config"]["train"]["device"] = "cuda"
    two["config"]["elmo"] |= {"cache": "disk", "model": "another"}
    assert len(group_runs([one, two])) == 1
    other = copy.deepcopy(two)
    other["config"]["words"]["dim"] = 50
    assert len(group_runs([one, other])) == 2


def test_different_files_are_noted_and_missing_tests_show_dev():
    rows = make_table([record(test=None), record(elmo=True, sha="other")])
    assert not rows[0].same_data
    assert "70.00 (dev)" in as_text(rows)
    assert "different files or word vectors" in as_text(rows)


def test_a_baseline_has_the_settings_and_word_vectors_of_the_runs_with_elmo():
    def runs(vectors, test, elmo, seeds):
        about = {"vectors": {"sha256": vectors}}
        return [record(seed=s, test=test, dev=test, elmo=elmo) | about | {"path": f"{vectors}{elmo}{s}"} for s in seeds]

    first = [*runs("first", 73.0, False, (0, 1, 2)), *runs("first", 77.0, True, (0, 1, 2))]
    second = [*runs("second", 72.0, False, (0, 1)), *runs("second", 79.0, True, (0, 1, 2))]
    for records in ([*first, *second], [*second, *first]):
        (row,) = make_table(records)
        assert (row.baseline.mean, row.elmo.mean, row.same_data) == (72.0, 79.0, True)
    (row,) = make_table([*first[:3], *second[2:]])
    assert (row.baseline.mean, row.elmo.mean, row.same_data) == (73.0, 79.0, False)
    assert "word vectors; do not compare" in as_text([row])


def test_runs_with_a_fine_tuned_bilm_are_noted():
    tuned = record(elmo=True)
    tuned["elmo"] |= {"finetuning": {"task": "ner"}}
    (row,) = make_table([record(), tuned])
    assert "first fine-tuned on the text of the task" in as_text([row])
    assert "fine-tuned" not in as_text(make_table([record(), record(elmo=True)]))


def test_the_four_formats_agree():
    records = [record(seed=s, elmo=e, test=80 + s + 4 * e) for s in (0, 1) for e in (False, True)]
    records.append(record(task="sst", metric="accuracy", test=45.0, dev=44.0))
    rows = make_table(records)
    text, markdown = as_text(rows), as_markdown(rows)
    assert "80.50 ± 0.71" in text
    assert "84.50 ± 0.71" in text
    assert "+4.00 / 20.5%" in text  # 4 of 19.5
    assert "+2.06 / 21.0%" in text  # the paper's
    assert len({len(line) for line in text.splitlines()[:2]}) == 1
    assert markdown.splitlines()[1].count("---") == 9
    values = json.loads(json.dumps(as_values(rows)))
    assert [v["task"] for v in values] == ["ner", "sst"]
    assert values[1]["elmo"] is None
    picture = ET.fromstring(as_svg(rows))
    words = " ".join(element.text or "" for element in picture.iter())
    assert "NER: paper 90.15 to 92.22, ours 80.5 to 84.5" in words
    assert "SST-5" in words


def test_no_records_make_an_empty_table_that_still_draws():
    assert make_table([]) == []
    ET.fromstring(as_svg([]))
