"""The jobs of the six tasks: order, dependencies, tables from their records; and the preparation of the data."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest
from models_with_head import tiny_with_head

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "runs" / "six_tasks"))

import jobs  # noqa: E402  # a script's neighbour, found by the line above
import overlap  # noqa: E402
import prepare  # noqa: E402

from elmo.errors import DataError  # noqa: E402
from elmo.report import table7  # noqa: E402
from elmo.report.layer_tables import LAYERS, PLACES, make_rows  # noqa: E402
from elmo.tasks.coref.data import read_examples  # noqa: E402
from elmo.tasks.record import find_records  # noqa: E402
from elmo.weights.store import save_store  # noqa: E402

NER = "Ada B-PER\nlived O\nin O\nLondon B-LOC\n. O\n\nIt O\nrained O\nin O\nYork B-LOC\n. O\n"
ALL = jobs.all_jobs(list(jobs.SECONDS), 3, {}, finetunes=True, variants=list(jobs.VARIANTS))
RUN_ALL = str(ROOT / "runs" / "six_tasks" / "run_all.py")


def test_every_job_comes_after_the_jobs_it_needs_and_has_its_own_folder():
    names = [job.name for job in ALL]
    assert len(set(names)) == len(names)
    assert all(names.index(needed) < names.index(job.name) for job in ALL for needed in job.needs)
    assert [job.priority for job in ALL] == sorted(job.priority for job in ALL)


def test_tokenised_and_raw_text_have_the_same_words_when_overlaps_are_counted():
    raw = "\u201cI don\u2019t think it's John's dog,\u201d we'll say; 'quoted' words can't hurt, o'clock."
    tokens = "`` I do n't think it 's John 's dog , '' we 'll say ; ' quoted ' words ca n't hurt , o'clock ."
    assert overlap.words_of(raw) == overlap.words_of(tokens)
    assert overlap.words_of(raw)[:7] == ["i", "dont", "think", "its", "johns", "dog", "well"]
    assert len(list(overlap.runs_of(raw, 5))) == len(overlap.words_of(raw)) - 4


def test_the_first_seed_of_all_six_tasks_comes_before_other_reported_runs():
    first = [job for job in ALL if job.priority == jobs.PRIORITY["seed 0"]]
    assert {(job.task, job.settings["elmo.mode"]) for job in first} == {
        (task, mode) for task in jobs.SECONDS for mode in ("none", "frozen")
    }
    assert {job.settings["train.seed"] for job in first} == {0}


@pytest.mark.parametrize("task", jobs.SWEPT)
def test_a_task_with_a_sweep_has_every_column_of_both_tables_once(task):
    columns = (jobs.PRIORITY["seed 0"], jobs.PRIORITY["tables"])
    runs = [job for job in ALL if job.task == task and job.priority in columns and job.settings["train.seed"] == 0]
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


def test_all_six_tasks_have_three_seeds_and_the_tables_and_the_figure_have_their_tasks():
    for task in jobs.SECONDS:
        for cell in ("baseline", jobs.main_cell(task), f"tuned-{jobs.main_cell(task)}"):
            assert all(any(job.name == f"runs/{task}/{cell}/seed-{seed}" for job in ALL) for seed in range(3))
    assert {"squad", "snli", "srl", "ner", "sst"} == set(jobs.SWEPT)
    with_shares = {job.task for job in ALL if "/share-" in job.name}
    assert with_shares == {"snli", "srl", "ner", "sst"}


def test_runs_with_a_tuned_bilm_wait_for_it_and_for_its_layers():
    tuned = [job for job in ALL if "/tuned-" in job.name]
    assert {job.task for job in tuned} == set(jobs.SECONDS)
    for job in tuned:
        assert {f"bilms/{job.task}", f"embed-tuned/{job.task}"} <= set(job.needs)
        assert job.uses_tuned
    assert not any(job.uses_tuned for job in ALL if "tuned" not in job.name)
    assert {job.kind for job in ALL if job.name.startswith("bilms/")} == {"finetune"}


def test_variants_are_compared_on_dev_and_each_changes_its_setting_only():
    for task in jobs.SECONDS:
        main = next(job for job in ALL if job.name == f"runs/{task}/{jobs.main_cell(task)}/seed-0")
        own = {"elmo.dropout": jobs.base_of(task).elmo.dropout}
        for variant, settings in jobs.VARIANTS.items():
            found = [job for job in ALL if job.name == f"variants/{task}/{variant}/with/seed-0"]
            assert len(found) == (settings != own)
            if not found:
                continue
            (job,) = found
            assert not job.test
            changed = {key: value for key, value in job.settings.items() if main.settings.get(key) != value}
            epochs = jobs.base_of(task).train.epochs
            longer = {"train.epochs": 2 * epochs, "train.patience": 2 * jobs.base_of(task).train.patience}
            assert changed == (longer if variant == "longer" else settings)


def test_the_longest_runs_come_first_on_request_and_still_after_the_jobs_that_they_need():
    ordered = jobs.longest_first(ALL)
    names = [job.name for job in ordered]
    assert sorted(names) == sorted(job.name for job in ALL)
    assert all(names.index(needed) < names.index(job.name) for job in ordered for needed in job.needs)
    seconds = [job.seconds for job in ordered if job.priority > 0]
    assert seconds == sorted(seconds, reverse=True)


def test_a_choice_of_jobs_contains_the_jobs_that_they_need():
    names = [job.name for job in jobs.with_needed(ALL, "runs/srl/tuned-*/seed-0")]
    assert names[-1] == "runs/srl/tuned-all-0.001-input/seed-0"
    assert {"bilms/srl", "embed-tuned/srl", "embed/srl"} < set(names)  # the learning rate is tried with the biLM itself
    assert sum(name.startswith("tries/srl/") for name in names) == 6


def test_durations_are_those_of_earlier_records():
    records = find_records([ROOT / "runs" / "six_tasks" / "first_edition" / "squad" / "baseline"])
    (job,) = (job for job in ALL if job.name == "runs/squad/baseline/seed-2")
    assert job.seconds == sum(records[0]["seconds"].values())


def test_every_cell_of_a_sweep_is_in_its_tables():
    records = find_records([ROOT / "runs" / "six_tasks" / "first_edition"])
    for kind in (LAYERS, PLACES):
        rows = {row.task: row.ours for row in make_rows(kind, records)}
        assert {"srl", "snli", "ner", "sst"} <= rows.keys() <= set(jobs.SWEPT)
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
    command = [sys.executable, RUN_ALL, "--list", "--tasks", "ner", "--finetune-bilm", "--variants", "all"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == sum(job.task == "ner" for job in ALL)


def test_a_job_that_fails_is_tried_once_more_and_then_reported(tmp_path):
    command = [
        sys.executable,
        RUN_ALL,
        "--data",
        str(tmp_path / "none"),
        "--out",
        str(tmp_path / "out"),
        "--mps",
        "off",
    ]
    command += ["--only", "runs/ner/baseline/seed-0", "--set", "train.device=cpu"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "1 jobs failed: runs/ner/baseline/seed-0" in done.stderr
    assert done.stdout.count("failed runs/ner/baseline/seed-0") == 1
    assert done.stdout.count("FAILED runs/ner/baseline/seed-0") == 1
    log = (tmp_path / "out" / "logs" / "runs.ner.baseline.seed-0.log").read_text(encoding="utf-8")
    assert log.count("train.iob2.xz") >= 2


@pytest.mark.slow
def test_a_tuned_bilm_is_made_once_and_used_and_the_same_command_finds_everything_done(tmp_path):
    data = tmp_path / "data"
    (data / "ner").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (data / "ner" / f"{split}.iob2.xz").write_bytes(lzma.compress(NER.encode()))
    save_store(tmp_path / "model", tiny_with_head())
    small = ("words.dim=8", "words.min_count=1", "model.hidden_dim=8", "train.epochs=1", "train.device=cpu")
    command = [sys.executable, RUN_ALL, "--data", str(data), "--out", str(tmp_path / "out"), "--tasks", "ner"]
    command += ["--model", str(tmp_path / "model"), "--mps", "off", "--jobs", "2", "--seeds", "1", "--finetune-bilm"]
    command += ["--only", "runs/ner/tuned-*", "--set-finetune", "lr=0.01"]
    command += [part for setting in small for part in ("--set", setting)]
    first = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    records = find_records([tmp_path / "out" / "records"])
    assert len(records) == 1
    assert records[0]["elmo"]["finetuning"]["settings"]["lr"] == 0.01
    assert records[0]["config"]["elmo"]["model"].endswith("bilms/ner/bilm")
    (row,) = table7.make_rows(records)
    assert (row.task, len(row.tuned.values)) == ("ner", 1)
    again = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "done runs/ner/tuned-all-0.001-input/seed-0" in first
    assert "done runs/" not in again
    for changed in (["--set", "optim.lr=0.5"], ["--set-finetune", "lr=0.02"], ["--vectors", str(data / "other.vec")]):
        (data / "other.vec").write_text("Paris 1 0 0 0 0 0 0 1\n", encoding="utf-8")
        refused = subprocess.run([*command, *changed], check=False, capture_output=True, text=True)
        assert refused.returncode != 0, changed
    scores = subprocess.run([*command, "--scores"], check=True, capture_output=True, text=True).stdout
    assert "| NER | tuned-all-0.001-input |" in scores
