"""Sets of runs: the runs of a sweep and of a learning curve, and resuming a set."""

from __future__ import annotations

import pytest
import tiny_tasks
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError, ElmoError
from elmo.tasks.config import make_config
from elmo.tasks.learning_curve import SHARES, learning_curve_cells, longer_training, read_shares
from elmo.tasks.sweep import Plan, make_plan, sweep_cells, train_plan, with_elmo
from elmo.tasks.task import load_task

NER = load_task("ner")


def base(**sections):
    return make_config(NER, {"elmo": {"mode": "frozen", "penalty": 0.001}}, sections)


def test_a_sweep_has_the_cells_of_both_tables_without_duplicates():
    names = [cell.name for cell in sweep_cells(base())]
    other_places = ["all-0.001-both", "all-0.001-output"]
    assert names == ["baseline", "top-input", "all-1-input", "all-0.001-input", *other_places]
    other = sweep_cells(base(elmo={"penalty": 0.1, "place": "both"}))
    assert [c.name for c in other][1:4] == ["top-both", "all-1-both", "all-0.001-both"]
    assert [c.name for c in other][4:] == ["all-0.1-input", "all-0.1-both", "all-0.1-output"]
    assert len(sweep_cells(base(), places=False)) == 4
    assert len(sweep_cells(base(), layers=False)) == 3


def test_each_run_has_the_settings_of_its_name():
    settings = [{"elmo": {"mode": "frozen", "penalty": 0.001}, "train": {"seed": 7}}]
    plan = make_plan(NER, settings, sweep_cells(make_config(NER, *settings)), seeds=2)
    runs = dict(plan.runs)
    assert list(runs)[:1] == ["baseline/seed-7"]
    assert list(runs)[6] == "baseline/seed-8", "all runs of a seed come before those of the next seed"
    assert runs["baseline/seed-8"].elmo.mode == "none"
    assert runs["top-input/seed-7"].elmo.layers == "top"
    assert runs["all-1-input/seed-7"].elmo.penalty == 1.0
    assert runs["all-0.001-both/seed-8"].elmo.place == "both"
    assert runs["all-0.001-both/seed-8"].train.seed == 8


def test_with_elmo_enables_elmo_and_a_disk_cache_unless_chosen(tmp_path):
    def config(*settings):
        return make_config(NER, *with_elmo(settings, NER, tmp_path)).elmo

    assert (config({}).mode, config({}).cache) == ("frozen", "disk")
    assert config({}).cache_dir == str(tmp_path / "layers")
    assert config({"elmo": {"mode": "tuned"}}).mode == "tuned"
    assert config({"elmo": {"cache": "memory"}}).cache_dir is None


def test_shares_are_read_from_percentages():
    assert read_shares("10, 0.1%,100,10") == (0.001, 0.1, 1.0)
    for invalid in ("0", "101", "a", ""):
        with pytest.raises(ConfigError, match="--shares"):
            read_shares(invalid)


def test_empty_and_duplicate_shares_are_skipped():
    names = [cell.name for cell in learning_curve_cells(base(), 200, SHARES)]
    # 0.1 percent of 200 examples is none; 0.3 and 1 percent are one and two
    assert names[::2] == [f"share-{p}/without" for p in ("0.3", "1", "3", "10", "30", "100")]
    assert names[1] == "share-0.3/with"
    assert len(learning_curve_cells(base(), 1, (0.9, 1.0))) == 2


@given(st.integers(1, 10**6), st.integers(1, 500))
def test_small_shares_get_at_least_so_many_updates_and_large_ones_are_unchanged(count, least):
    config = base(train={"batch_size": 32, "epochs": 20, "patience": 4})
    settings, epoch_updates = longer_training(config, count, least), -(-count // 32)
    if 20 * epoch_updates >= least:
        assert settings == {}
        return
    train = settings["train"]
    assert least <= train["epochs"] * epoch_updates < least + epoch_updates
    num_validations = train["epochs"] * epoch_updates // train["validate_after"]
    assert 1 <= num_validations <= 2 * 20 + 1  # about as often as for a whole file
    assert train["patience"] >= train["epochs"]
    assert settings["optim"] == {"halve_after": 0}


def test_a_set_is_resumed_and_returns_all_records(tmp_path):
    base_config = tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen"}, "train": {"epochs": 1}})
    settings = [base_config.to_dict()]
    plan = make_plan(NER, settings, sweep_cells(base_config, places=False)[:2], seeds=1)
    first = train_plan(Plan(runs=plan.runs[:1]), tmp_path / "set")
    assert [path.parent.parent.name for path in (tmp_path / "set").rglob("record.json")] == ["baseline"]
    lines: list[str] = []
    records = train_plan(plan, tmp_path / "set", say=lines.append)
    assert lines[0].endswith("2 runs in " + str(tmp_path / "set") + ", 1 of them done")
    assert [line for line in lines if line.startswith("[")] == ["[2 of 2] top-input/seed-0"]
    assert records[0] == first[0]
    assert [r["elmo"] is None for r in records] == [True, False]
    assert records[1]["path"] == str(tmp_path / "set" / "top-input" / "seed-0" / "record.json")
    assert all((tmp_path / "set" / name / "record.json").exists() for name, _ in plan.runs)
    other = make_plan(
        NER, [*settings, {"elmo": {"place": "output"}}], sweep_cells(base_config, places=False)[:1], seeds=1
    )
    assert train_plan(other, tmp_path / "set") == first, "without ELMo its settings are ignored"
    with pytest.raises(ConfigError, match="one folder"):
        train_plan(Plan(runs=plan.runs[:1] * 2), tmp_path / "set")


def test_unreadable_files_are_an_error_before_the_first_training(tmp_path):
    valid = tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen"}, "train": {"epochs": 1}})
    for invalid, error in (
        ({"elmo": {"model": str(tmp_path / "nowhere")}}, ElmoError),
        ({"data": {"test": str(tmp_path / "gone")}}, DataError),
    ):
        settings = [valid.to_dict(), invalid]
        plan = make_plan(NER, settings, sweep_cells(make_config(NER, *settings), places=False)[:2], seeds=1)
        with pytest.raises(error, match=r"nowhere|gone"):
            train_plan(plan, tmp_path / "set")
        assert not (tmp_path / "set").exists()
