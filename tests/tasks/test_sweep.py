"""Sets of runs: which runs a sweep and a curve ask for, and that a set goes on where it stopped."""

from __future__ import annotations

import pytest
import tiny_tasks
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError, ElmoError
from elmo.tasks.config import make_config
from elmo.tasks.learning_curve import SHARES, curve_cells, durations, read_shares
from elmo.tasks.sweep import Plan, make_plan, sweep_cells, train_plan, with_elmo
from elmo.tasks.task import load_task

NER = load_task("ner")


def base(**sections):
    return make_config(NER, {"elmo": {"mode": "frozen", "penalty": 0.001}}, sections)


def test_a_sweep_asks_for_both_tables_and_for_what_they_share_once():
    names = [cell.name for cell in sweep_cells(base())]
    both = ["all-0.001-both", "all-0.001-output"]
    assert names == ["baseline", "top-input", "all-1-input", "all-0.001-input", *both]
    other = sweep_cells(base(elmo={"penalty": 0.1, "place": "both"}))
    assert [c.name for c in other][1:4] == ["top-both", "all-1-both", "all-0.001-both"]
    assert [c.name for c in other][4:] == ["all-0.1-input", "all-0.1-both", "all-0.1-output"]
    assert len(sweep_cells(base(), places=False)) == 4
    assert len(sweep_cells(base(), layers=False)) == 3


def test_each_run_has_the_settings_its_name_says():
    layers = [{"elmo": {"mode": "frozen", "penalty": 0.001}, "train": {"seed": 7}}]
    plan = make_plan(NER, layers, sweep_cells(make_config(NER, *layers)), seeds=2)
    runs = dict(plan.runs)
    assert list(runs)[:1] == ["baseline/seed-7"]
    assert list(runs)[6] == "baseline/seed-8", "a seed's runs are done before the next seed's"
    assert runs["baseline/seed-8"].elmo.mode == "none"
    assert runs["top-input/seed-7"].elmo.layers == "top"
    assert runs["all-1-input/seed-7"].elmo.penalty == 1.0
    assert runs["all-0.001-both/seed-8"].elmo.place == "both"
    assert runs["all-0.001-both/seed-8"].train.seed == 8


def test_elmo_is_switched_on_and_its_layers_kept_for_the_set_unless_chosen(tmp_path):
    def config(*layers):
        return make_config(NER, *with_elmo(layers, NER, tmp_path)).elmo

    assert (config({}).mode, config({}).cache) == ("frozen", "disk")
    assert config({}).cache_dir == str(tmp_path / "layers")
    assert config({"elmo": {"mode": "tuned"}}).mode == "tuned"
    assert config({"elmo": {"cache": "memory"}}).cache_dir is None


def test_shares_are_read_from_percents():
    assert read_shares("10, 0.1%,100,10") == (0.001, 0.1, 1.0)
    for wrong in ("0", "101", "a", ""):
        with pytest.raises(ConfigError, match="--shares"):
            read_shares(wrong)


def test_a_share_without_an_example_or_with_those_of_another_is_left_out():
    names = [cell.name for cell in curve_cells(base(), 200, SHARES)]
    # 0.1 percent of 200 is none; 0.3 and 1 percent are one and two
    assert names[::2] == [f"share-{p}/without" for p in ("0.3", "1", "3", "10", "30", "100")]
    assert names[1] == "share-0.3/with"
    assert len(curve_cells(base(), 1, (0.9, 1.0))) == 2


@given(st.integers(1, 10**6), st.integers(1, 500))
def test_small_shares_get_their_updates_and_large_ones_are_left_as_they_are(count, least):
    config = base(train={"batch_size": 32, "epochs": 20, "patience": 4})
    longer, an_epoch = durations(config, count, least), -(-count // 32)
    if 20 * an_epoch >= least:
        assert longer == {}
        return
    train = longer["train"]
    assert least <= train["epochs"] * an_epoch < least + an_epoch
    assert 1 <= train["epochs"] * an_epoch // train["validate_after"] <= 2 * 20 + 1  # about as often as a whole file
    assert train["patience"] >= train["epochs"]
    assert longer["optim"] == {"halve_after": 0}


def test_a_set_goes_on_where_it_stopped_and_gives_all_records(tmp_path):
    base_config = tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen"}, "train": {"epochs": 1}})
    layers = [base_config.to_dict()]
    plan = make_plan(NER, layers, sweep_cells(base_config, places=False)[:2], seeds=1)
    first = train_plan(Plan(runs=plan.runs[:1]), tmp_path / "set")
    assert plan.left(tmp_path / "set") == 1
    said: list[str] = []
    records = train_plan(plan, tmp_path / "set", say=said.append)
    assert said[0].endswith("2 runs in " + str(tmp_path / "set") + ", 1 of them done")
    assert [line for line in said if line.startswith("[")] == ["[2 of 2] top-input/seed-0"]
    assert records[0] == first[0]
    assert [r["elmo"] is None for r in records] == [True, False]
    assert records[1]["path"] == str(tmp_path / "set" / "top-input" / "seed-0" / "record.json")
    assert plan.left(tmp_path / "set") == 0
    other = make_plan(
        NER, [*layers, {"elmo": {"place": "output"}}], sweep_cells(base_config, places=False)[:1], seeds=1
    )
    assert train_plan(other, tmp_path / "set") == first, "without ELMo its settings mean nothing"
    with pytest.raises(ConfigError, match="one folder"):
        train_plan(Plan(runs=plan.runs[:1] * 2), tmp_path / "set")


def test_what_cannot_be_read_is_found_before_the_first_training(tmp_path):
    good = tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen"}, "train": {"epochs": 1}})
    for wrong, error in (
        ({"elmo": {"model": str(tmp_path / "nowhere")}}, ElmoError),
        ({"data": {"test": str(tmp_path / "gone")}}, DataError),
    ):
        layers = [good.to_dict(), wrong]
        plan = make_plan(NER, layers, sweep_cells(make_config(NER, *layers), places=False)[:2], seeds=1)
        with pytest.raises(error, match=r"nowhere|gone"):
            train_plan(plan, tmp_path / "set")
        assert not (tmp_path / "set").exists()
