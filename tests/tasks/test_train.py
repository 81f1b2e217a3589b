"""The training loop: resuming, complete records, early stopping, weight averages, and errors."""

from __future__ import annotations

import copy
import json
import os
import shlex
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny_tasks
import torch
from models_with_head import tiny_with_head
from safetensors.torch import load_file

from elmo.errors import ConfigError, DataError, OutputError
from elmo.run_folder import lock_run_folder
from elmo.settings import parse_assignment
from elmo.stop_signals import StopSignals
from elmo.tasks.checkpoint import load_checkpoint
from elmo.tasks.config import make_config
from elmo.tasks.optim import WeightAverage, load_optimizer, make_optimizer, update
from elmo.tasks.predict import evaluate, predict
from elmo.tasks.record import find_records, read_record
from elmo.tasks.run import new_run, open_run
from elmo.tasks.sweep import Plan, train_plan
from elmo.tasks.task import load_task
from elmo.tasks.train import train
from elmo.tasks.training_loop import TrainingLoop, update_seed
from elmo.weights.checkpoint_folder import list_checkpoints
from elmo.weights.store import save_store


class Interrupted(Exception):
    """Simulates kill -9."""


def train_interrupted(config, out, after: int) -> None:
    """Trains until a line of progress is printed for more than `after` validations, then interrupts the run."""
    lines = []

    def say(line: str) -> None:
        lines.append(line)
        if sum(line.startswith("epoch") for line in lines) > after:
            raise Interrupted  # before the checkpoint of this validation, so that the previous one is resumed

    with pytest.raises(Interrupted):
        train(config, out, say=say)


def assert_same_weights(folder: Path, *runs: str) -> None:
    first, second = (load_file(folder / name / "model.safetensors") for name in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "overrides",
    [
        {"elmo": {"mode": "none"}, "optim": {"name": "adadelta", "lr": 1.0, "ema": 0.9}},
        {"elmo": {"mode": "frozen", "place": "both"}, "train": {"validate_every": 3}, "optim": {"halve_after": 1}},
    ],
    ids=["ema", "within an epoch"],
)
def test_an_interrupted_run_has_the_same_result(tmp_path, overrides):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"batch_size": 2, "epochs": 3}}, overrides)
    uninterrupted = train(config, tmp_path / "uninterrupted")
    train_interrupted(config, tmp_path / "resumed", after=1)
    assert load_checkpoint(tmp_path / "resumed") is not None
    train_interrupted(config, tmp_path / "resumed", after=1)
    resumed = train(config, tmp_path / "resumed")
    assert_same_weights(tmp_path, "uninterrupted", "resumed")
    for record in (uninterrupted, resumed):
        record.pop("seconds")
        for validation in record["curve"]:
            validation.pop("seconds")
    assert uninterrupted == resumed
    assert len(list_checkpoints(tmp_path / "resumed" / "checkpoint")) == 1


def test_short_epochs_are_validated_after_enough_updates_and_at_the_end(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"batch_size": 2, "epochs": 5, "patience": 9}})
    every_epoch = train(config, tmp_path / "every_epoch")
    epoch_updates = every_epoch["curve"][0]["update"]
    overrides = {"train": {"validate_after": epoch_updates + 1}}
    some_epochs = train(make_config(load_task("ner"), config.to_dict(), overrides), tmp_path / "some_epochs")
    assert [validation["epoch"] for validation in every_epoch["curve"]] == [1, 2, 3, 4, 5]
    assert [validation["epoch"] for validation in some_epochs["curve"]] == [2, 4, 5]
    assert some_epochs["curve"][-1]["dev"] == every_epoch["curve"][-1]["dev"]


def test_the_record_is_complete(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen"}, "train": {"seed": 7, "epochs": 2}})
    record = train(config, tmp_path / "run")
    assert record == read_record(tmp_path / "run")
    assert (record["task"], record["metric"]) == ("ner", "f1")
    assert record["seed"] == 7
    assert record["config"] == json.loads(json.dumps(config.to_dict()))
    assert {split: about["examples"] for split, about in record["data"].items()} == {"train": 5, "dev": 5, "test": 5}
    assert all(len(about["sha256"]) == 64 for about in record["data"].values())
    assert len(record["elmo"]["sha256"]) == 64
    assert record["vectors"] is None
    assert record["dev"]["f1"] == record["best"]["score"]
    assert record["test"]["f1"] == record["dev"]["f1"]  # the same file
    assert sum(record["mixes"]["input"]["weights"]) == pytest.approx(1)
    assert [validation["epoch"] for validation in record["curve"]] == [1, 2]
    assert record["updates"] == record["curve"][-1]["update"] == 4
    assert record["parameters"] > 1000
    arguments = shlex.split(record["command"])
    assert arguments[:4] == ["elmo", "task", "train", "ner"]
    assert make_config(load_task("ner"), *map(parse_assignment, arguments[5::2])) == config
    assert find_records([tmp_path])[0]["path"].endswith("record.json")


def test_a_finished_run_is_not_trained_again_and_other_settings_are_an_error(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 1}})
    first = train(config, tmp_path / "run")
    lines = []
    assert train(config, tmp_path / "run", say=lines.append) == first
    assert "is done" in lines[0]
    with pytest.raises(ConfigError, match=r"optim.lr = 0.001; now it is 0.5"):
        train(tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 1}, "optim": {"lr": 0.5}}), tmp_path / "run")


@pytest.mark.parametrize(
    "overrides",
    [
        {"optim": {"name": "adadelta", "lr": 1.0, "ema": 0.9}},
        {"elmo": {"mode": "frozen"}, "train": {"validate_every": 2}, "optim": {"halve_after": 1}},
        {"train": {"validate_after": 4}},  # the last epoch of the short run is validated only because it is the last
        {"train": {"patience": 1}, "optim": {"lr": 0.0}},
    ],
    ids=["ema", "within an epoch", "a validation of the short run only", "early stopping"],
)
def test_a_finished_run_continues_with_more_epochs_to_the_result_of_one_long_run(tmp_path, overrides):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"batch_size": 2, "epochs": 5}}, overrides)
    long = train(config, tmp_path / "long")
    short = train(with_epochs(config, 3), tmp_path / "parts")
    assert short["epochs"] <= 3
    longer = train(config, tmp_path / "parts")
    assert_same_weights(tmp_path, "long", "parts")
    assert without_seconds(longer) == without_seconds(long)
    assert read_record(tmp_path / "parts") == longer


def with_epochs(config, epochs: int):
    return make_config(load_task("ner"), config.to_dict(), {"train": {"epochs": epochs}})


def without_seconds(record):
    curve = [{key: value for key, value in one.items() if key != "seconds"} for one in record["curve"]]
    return {**{key: value for key, value in record.items() if key != "seconds"}, "curve": curve}


def test_the_same_or_fewer_epochs_leave_a_finished_run_as_it_is(tmp_path):
    config, lines = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 2}}), []
    first = train(config, tmp_path / "run")
    assert train(with_epochs(config, 1), tmp_path / "run", say=lines.append) == first
    assert "is done" in lines[0]
    plan = Plan(runs=(("run", with_epochs(config, 1)),))
    assert train_plan(plan, tmp_path)[0]["best"] == first["best"]


def test_a_run_that_was_interrupted_while_it_continued_can_be_resumed_and_used(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"batch_size": 2, "epochs": 4}})
    long = train(config, tmp_path / "long")
    short = train(with_epochs(config, 1), tmp_path / "parts")
    train_interrupted(config, tmp_path / "parts", after=1)
    assert read_record(tmp_path / "parts") == short
    assert open_run(tmp_path / "parts").task.name == "ner"
    assert without_seconds(train(config, tmp_path / "parts")) == without_seconds(long)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_a_state_that_was_saved_without_fused_kernels_is_continued_with_them(name):
    config = make_config(load_task("ner"), {"optim": {"name": name, "lr": 0.01}})
    torch.manual_seed(0)
    models = [torch.nn.Linear(3, 2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    saved, loaded = (make_optimizer(model, config) for model in models)

    def step(model, optimizer):
        assert update(model, optimizer, model(torch.ones(4, 3)).pow(2).sum(), 5.0)

    step(models[0], saved)
    saved.param_groups[0]["lr"] = 0.003  # halved on the way
    state = saved.state_dict()
    for group in state["param_groups"]:
        group["fused"] = None
    models[1].load_state_dict(models[0].state_dict())
    load_optimizer(loaded, copy.deepcopy(state))
    step(models[0], saved)
    step(models[1], loaded)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


def test_a_finished_run_without_a_checkpoint_is_not_silently_trained_from_the_start(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 1, "keep_checkpoint": False}})
    train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()
    with pytest.raises(ConfigError, match="without a checkpoint"):
        train(with_epochs(config, 2), tmp_path / "run")


def test_changed_data_is_an_error_when_a_run_is_resumed(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner")
    train_interrupted(config, tmp_path / "run", after=1)
    with open(config.data.train, "a", encoding="utf-8") as file:
        file.write("\nMore O\n")
    with pytest.raises(ConfigError, match=r"dev\.examples"):
        train(config, tmp_path / "run")


def test_changed_data_and_another_bilm_are_an_error_for_a_finished_run(tmp_path):
    save_store(tmp_path / "model", tiny_with_head())
    overrides = {"elmo": {"mode": "frozen", "model": str(tmp_path / "model")}, "train": {"epochs": 1}}
    config = tiny_tasks.settings(tmp_path, "ner", overrides)
    first = train(config, tmp_path / "run")
    assert train(config, tmp_path / "run") == first
    shutil.rmtree(tmp_path / "model")
    save_store(tmp_path / "model", tiny_with_head(seed=1))
    with pytest.raises(ConfigError, match=r"sha256\.elmo = "):
        train(config, tmp_path / "run")
    with open(config.data.train, "a", encoding="utf-8") as file:
        file.write("\nMore O\n")
    with pytest.raises(ConfigError, match=r"sha256\.dev = "):
        train(config, tmp_path / "run")


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"data": {"dev": str(tmp_path / "nowhere")}})
    with pytest.raises(DataError, match="nowhere"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(OutputError, match="is a file"):
        train(config, Path(config.data.train) / "run")


def test_a_damaged_checkpoint_is_an_error_with_its_file(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner")
    train_interrupted(config, tmp_path / "run", after=1)
    (path,) = (tmp_path / "run" / "checkpoint").glob("*/best.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"All 1 checkpoints in .* are damaged"):
        train(config, tmp_path / "run")


def test_a_run_with_a_damaged_newest_checkpoint_continues_from_the_one_before_it(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("elmo.tasks.training_loop.QUICK_SAVE", float("inf"))  # every validation writes a checkpoint
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 4, "patience": 9}})
    train(config, tmp_path / "uninterrupted")
    train_interrupted(config, tmp_path / "run", after=3)
    before, newest = list_checkpoints(tmp_path / "run" / "checkpoint")
    (newest / "training.pt").write_bytes(b"")
    lines: list[str] = []
    train(config, tmp_path / "run", say=lines.append)
    assert any(line.startswith(f"continuing {before} after") for line in lines)
    assert [record.levelname for record in caplog.records if "damaged" in record.getMessage()] == ["WARNING"]
    assert_same_weights(tmp_path, "uninterrupted", "run")


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_saves_the_run_and_the_same_command_resumes_it(tmp_path, number, error):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 4, "patience": 9}})
    train(config, tmp_path / "uninterrupted")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if line.startswith("epoch 2"):
            signal.raise_signal(number)

    def exit_on_signal(*_: object) -> None:
        raise SystemExit(143)  # as the command line does

    handler = signal.signal(signal.SIGTERM, exit_on_signal)
    try:
        with pytest.raises(error):
            train(config, tmp_path / "run", say=say)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert lines[-1].startswith(f"stopped by {number.name} after update 4; the state of the run is saved in")
    assert lines[-1].endswith("The same command resumes it.")
    train(config, tmp_path / "run", say=lines.append)
    assert "after update 4" in lines[-4]
    assert_same_weights(tmp_path, "uninterrupted", "run")


class StopAfterUpdates(StopSignals):
    """Says after so many questions that a signal was received."""

    def __init__(self, count: int) -> None:
        self.left = count

    @property
    def received(self) -> int | None:
        self.left -= 1
        return None if self.left >= 0 else signal.SIGTERM


def test_a_run_that_a_signal_stops_within_its_first_epoch_has_the_same_result(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"batch_size": 1, "epochs": 2}})
    train(config, tmp_path / "uninterrupted")
    (tmp_path / "run").mkdir()
    run, splits = new_run(config)
    loop = TrainingLoop(run, splits, tmp_path / "run", say=lambda line: None, show=None)
    loop.run_to_end(StopAfterUpdates(3))
    assert 0 < loop.state.updates < 5
    assert loop.state.best is None
    loop.save()
    train(config, tmp_path / "run")
    assert_same_weights(tmp_path, "uninterrupted", "run")


def test_a_second_process_in_a_run_folder_is_refused_and_names_the_first(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 1}})
    with lock_run_folder(tmp_path / "run"):
        with pytest.raises(OutputError, match=rf"run is in use by process {os.getpid()} on") as error:
            train(config, tmp_path / "run")
    assert "--out" in error.value.hint
    assert train(config, tmp_path / "run")["task"] == "ner"


def test_two_sets_of_runs_take_turns_and_train_each_run_once(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 1}})
    first = train(config, tmp_path / "first")
    waiting = threading.Event()

    def say(line: str) -> None:
        if "is in use by" in line and line.endswith("Waiting for it."):
            waiting.set()

    plan = Plan(runs=(("a", config), ("b", config)))
    with ThreadPoolExecutor(1) as executor:
        with lock_run_folder(tmp_path / "set" / "a"):
            records = executor.submit(train_plan, plan, tmp_path / "set", say=say)
            assert waiting.wait(1800)
            shutil.copytree(tmp_path / "first", tmp_path / "set" / "a", dirs_exist_ok=True)  # the holder has finished
        trained = records.result(1800)
    assert trained[0]["seconds"] == first["seconds"], "the run of the first process is not trained again"
    assert trained[1]["path"].endswith("record.json")


def test_training_stops_when_the_dev_score_does_not_improve(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 50, "patience": 2}, "optim": {"lr": 0.0}})
    record = train(config, tmp_path / "run")
    assert record["best"]["epoch"] == 1
    assert record["epochs"] == 3


def test_training_in_bfloat16_has_a_loss(tmp_path):
    overrides = {"elmo": {"mode": "frozen", "place": "both"}, "train": {"epochs": 1, "precision": "bfloat16"}}
    for task in ("ner", "sst"):
        config = tiny_tasks.settings(tmp_path, task, overrides)
        assert train(config, tmp_path / task)["curve"][0]["loss"] > 0


def test_seeds_differ(tmp_path):
    losses = [
        train(tiny_tasks.settings(tmp_path, "ner", {"train": {"seed": seed, "epochs": 1}}), tmp_path / str(seed))[
            "curve"
        ][0]["loss"]
        for seed in (0, 1)
    ]
    assert losses[0] != losses[1]
    update_seeds = {update_seed(seed, n) for seed in range(20) for n in range(500)}
    assert len(update_seeds) == 20 * 500


def test_gradients_that_are_not_finite_do_not_change_the_weights(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 100}, "optim": {"name": "sgd", "lr": 100.0}})
    run, _ = new_run(config)
    weight = run.model.project.weight
    before = weight.detach().clone()
    optimizer = make_optimizer(run.model, config)
    assert not update(run.model, optimizer, (weight * float("inf")).sum(), 1.0)
    assert torch.equal(weight, before)
    assert update(run.model, optimizer, weight.sum(), 1.0)
    assert not torch.equal(weight, before)


def test_a_tuned_bilm_is_trained_and_saved_with_the_run(tmp_path):
    overrides = {"elmo": {"mode": "tuned", "lr": 0.01}, "train": {"epochs": 2}}
    config = tiny_tasks.settings(tmp_path, "ner", overrides)
    record = train(config, tmp_path / "run")
    fresh, splits = new_run(config)
    assert record["elmo"]["sha256"] == fresh.elmo_sha256  # of the weights before the task
    trained = open_run(tmp_path / "run")
    name = next(n for n, _ in trained.model.named_parameters() if n.startswith("inputs.bilm.stacks"))
    assert not torch.equal(dict(trained.model.named_parameters())[name], dict(fresh.model.named_parameters())[name])
    assert evaluate(trained, splits.dev)["f1"] == pytest.approx(read_record(tmp_path / "run")["dev"]["f1"])


def test_a_tuned_bilm_with_a_softmax_head_can_be_resumed_and_opened(tmp_path):
    save_store(tmp_path / "model", tiny_with_head())
    overrides = {"elmo": {"mode": "tuned", "model": str(tmp_path / "model")}, "train": {"epochs": 2}}
    config = tiny_tasks.settings(tmp_path, "ner", overrides)
    train_interrupted(config, tmp_path / "run", after=1)
    record = train(config, tmp_path / "run")
    assert evaluate(open_run(tmp_path / "run"), load_task("ner").read(Path(config.data.dev))) == record["dev"]
    file = tmp_path / "run" / "model.safetensors"
    assert not any("head" in name for name in load_file(file))
    assert file.stat().st_mode & 0o777 == (tmp_path / "run" / "words.json").stat().st_mode & 0o777


def test_a_record_without_a_required_key_is_an_error(tmp_path):
    record = train(tiny_tasks.settings(tmp_path, "ner", {"train": {"epochs": 1}}), tmp_path / "run")
    for missing, incomplete in (
        ("seed", {k: v for k, v in record.items() if k != "seed"}),
        ("dev.f1", {**record, "dev": {}}),
    ):
        (tmp_path / "run" / "record.json").write_text(json.dumps(incomplete), encoding="utf-8")
        with pytest.raises(DataError, match=f"record of task without {missing}"):
            find_records([tmp_path])


def test_an_opened_run_has_the_scores_of_its_record(tmp_path):
    config = tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen"}})
    record = train(config, tmp_path / "run")
    run = open_run(tmp_path / "run", device="cpu")
    examples = run.task.read(Path(config.data.dev))
    assert evaluate(run, examples) == pytest.approx(record["dev"])
    alone = [predict(run, [example])[0] for example in examples]
    assert alone == predict(run, examples)  # independent of the other examples
    with pytest.raises(DataError, match=r"config\.json: cannot be read"):
        open_run(tmp_path / "nowhere")


def test_another_bilm_is_an_error_when_a_run_is_opened(tmp_path):
    train(tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen"}, "train": {"epochs": 1}}), tmp_path / "run")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    record["elmo"]["sha256"] = "0" * 64
    (tmp_path / "run" / "record.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="is not the biLM"):
        open_run(tmp_path / "run")


def test_weight_average_by_hand():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 0.0)
    average = WeightAverage(model, 0.5)
    torch.nn.init.constant_(model.weight, 8.0)
    average.step(model, updates=98)  # (1 + 98) / (10 + 98) is above 0.5, so the decay is 0.5
    average.swap(model)
    assert model.weight.item() == 4.0
    average.swap(model)
    assert model.weight.item() == 8.0
