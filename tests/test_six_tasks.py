"""The jobs of the six tasks: order, dependencies, tables from their records; and the preparation of the data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "runs" / "six_tasks"))

import jobs  # noqa: E402  # a script's neighbour, found by the line above
import prepare  # noqa: E402

from elmo.errors import DataError  # noqa: E402
from elmo.report.layer_tables import LAYERS, PLACES, make_rows  # noqa: E402
from elmo.tasks.coref.data import read_examples  # noqa: E402
from elmo.tasks.record import find_records  # noqa: E402

ALL = jobs.all_jobs(list(jobs.SECONDS), 3, {})


def test_every_job_comes_after_the_jobs_it_needs_and_has_its_own_folder():
    names = [job.name for job in ALL]
    assert len(set(names)) == len(names)
    assert all(names.index(needed) < names.index(job.name) for job in ALL for needed in job.needs)
    assert [job.priority for job in ALL] == sorted(job.priority for job in ALL)


def test_the_first_seed_of_all_six_tasks_comes_before_other_reported_runs():
    first = [job for job in ALL if job.priority == 1]
    assert {(job.task, job.settings["elmo.mode"]) for job in first} == {
        (task, mode) for task in jobs.SECONDS for mode in ("none", "frozen")
    }
    assert {job.settings["train.seed"] for job in first} == {0}


@pytest.mark.parametrize("task", jobs.SWEPT)
def test_a_task_with_a_sweep_has_every_column_of_both_tables_once(task):
    runs = [job for job in ALL if job.task == task and job.priority in (1, 3) and job.settings["train.seed"] == 0]
    base = jobs.base_of(task).elmo
    with_elmo = [job.settings for job in runs if job.settings["elmo.mode"] != "none"]
    variants = [(s["elmo.layers"], s["elmo.penalty"], s["elmo.place"]) for s in with_elmo]
    table2 = [("top", 0.001, base.place), ("all", 1.0, base.place)]
    assert sorted(variants) == sorted([*table2, *(("all", 0.001, place) for place in ("input", "both", "output"))])


def test_settings_are_selected_on_dev_in_runs_without_a_test_file(tmp_path, monkeypatch):
    tries = [job for job in ALL if job.name.startswith("tries/")]
    assert tries
    assert not any(job.test for job in tries)
    scores = {5e-4: (50, 60), 1e-3: (52, 63), 2e-3: (55, 40)}
    monkeypatch.setattr(
        jobs,
        "read_record",
        lambda folder: {
            "best": {
                "score": scores[float(folder.parents[1].name.removeprefix("optim.lr-"))][folder.parent.name == "with"]
            }
        },
    )
    assert jobs.selected_setting("srl", tmp_path) == {"optim.lr": 1e-3}
    assert jobs.selected_setting("ner", tmp_path) == {}


def test_every_cell_of_a_sweep_is_in_its_tables():
    records = find_records([ROOT / "runs" / "six_tasks" / "records"])
    for kind in (LAYERS, PLACES):
        rows = {row.task: row.ours for row in make_rows(kind, records)}
        assert rows.keys() == set(jobs.SWEPT)
        for scores in rows.values():
            assert all(score is not None and len(score.values) >= 2 for score in scores)


def test_coref_has_the_mentions_of_one_file_and_the_sentences_of_the_other(tmp_path):
    (tmp_path / "conll").mkdir()
    rows = (
        "# begin document \n0\tAnn\t(1(2)\n1\tBo\t1)\n2\tran\t_\n3\tAnn\t(2)\n4\tsat\t_\n5\tthey\t(1)\n# end document\n"
    )
    (tmp_path / "conll" / "GUM_news_one.conll").write_text(rows, encoding="utf-8")
    line = {"doc": "GUM_news_one", "sentences": [["Ann", "Bo", "ran"], ["Ann", "sat", "they"]], "clusters": []}
    for split in ("train", "dev", "test"):
        (tmp_path / f"ontogum_{split}.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (tmp_path / "train.conll").write_text(prepare.coref_files(tmp_path)["train"], encoding="utf-8")
    (example,) = read_examples(tmp_path / "train.conll")
    assert (example.doc, example.genre, len(example.sentences)) == ("GUM_news_one", "news", 2)
    assert sorted(example.clusters or ()) == [((0, 0), (3, 3)), ((0, 1), (5, 5))]
    line["sentences"][0][0] = "Eve"
    (tmp_path / "ontogum_dev.jsonl").write_text(json.dumps(line), encoding="utf-8")
    with pytest.raises(DataError, match="GUM_news_one"):
        prepare.coref_files(tmp_path)


def test_squad_paragraphs_are_in_one_split_and_the_official_dev_file_is_test(tmp_path):
    articles = [{"title": "a", "paragraphs": [{"context": f"text {n}", "qas": []} for n in range(60)]}]
    (tmp_path / "squad11_train_subset.json").write_text(json.dumps({"data": articles}), encoding="utf-8")
    (tmp_path / "squad11_dev_full.json").write_text('{"data": []}', encoding="utf-8")
    texts = prepare.squad_files(tmp_path)
    train, dev = (
        {p["context"] for article in json.loads(texts[split])["data"] for p in article["paragraphs"]}
        for split in ("train", "dev")
    )
    assert not train & dev
    assert len(train | dev) == 60
    assert 1 <= len(dev) <= 15
    assert json.loads(texts["test"]) == {"data": []}


def test_selected_vectors_are_those_that_lookups_use(tmp_path):
    path = tmp_path / "some.vec"
    path.write_text("3 2\nParis 0.11 1.0\nparis 0.5 0.5\nthe 0.249 -0.07\n", encoding="utf-8")
    assert list(prepare.select_vectors(path, {"Paris", "The"}, 0.1)) == ["Paris 0.1 1\n", "the 0.2 -0.1\n"]


def test_the_list_of_jobs_is_printed():
    command = [sys.executable, str(ROOT / "runs" / "six_tasks" / "run_all.py"), "--list", "--tasks", "ner"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == sum(job.task == "ner" for job in ALL)
