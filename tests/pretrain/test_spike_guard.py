"""A spike of the loss rolls the run back to a checkpoint with half the learning rate; ordinary losses never do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kill_train import SHORT_WINDOWS, randomize_softmax
from test_resume import drive
from tiny_run import digest, records, run, train_settings, write_text

from elmo.errors import ConfigError, ElmoError
from elmo.pretrain.config import TrainConfig
from elmo.pretrain.train import checkpoint, spike_guard
from elmo.pretrain.train.spike_guard import PATIENCE, SLOW_WINDOW, SpikeGuard
from elmo.pretrain.train.step import Trainer

LONG = train_settings(max_steps=90, checkpoint_every=10, validate_every=20)
CONSTANT = {"optim": {"warmup": 0.0, "decay": "none"}}
SPIKE = 66  # the first step of a spike


def first_spike(losses: list[float], threshold: float | None = 0.5) -> int | None:
    """The 1-based index of the loss that completes a spike; None without a spike."""
    guard = SpikeGuard(threshold)
    return next((number for number, loss in enumerate(losses, 1) if guard.observe(loss)), None)


# ---- detection of spikes ----


def training_losses(seed: int, num_steps: int, noise: float) -> list[float]:
    """Losses that fall from 9 to 4 nats, by 0.2 at the start of each of five epochs, with noise and a slow drift."""
    rng, drift, losses = random.Random(seed), 0.0, []
    for step in range(num_steps):
        drift = 0.9 * drift + rng.gauss(0, 0.2 * noise)
        epoch = step * 5 // num_steps
        losses.append(4 + 5 * math.exp(-step / (num_steps / 20)) - 0.2 * epoch + drift + rng.gauss(0, noise))
    return losses


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("num_steps", [300, 3000, 30_000])
def test_ordinary_run_has_no_spike(noise: float, num_steps: int) -> None:
    for seed in range(3):
        assert first_spike(training_losses(seed, num_steps, noise)) is None


def test_long_noisy_run_with_constant_mean_has_no_spike() -> None:
    rng = random.Random(0)
    assert first_spike([4 + rng.gauss(0, 1.5) for _ in range(100_000)]) is None


@pytest.mark.parametrize("rise", [0.7, 2.0, 10.0])
def test_lasting_rise_is_detected_within_100_steps(rise: float) -> None:
    losses = training_losses(0, 3000, 0.05)
    spike_step = first_spike(losses[:2000] + [loss + rise for loss in losses[2000:]])
    assert spike_step is not None
    assert 2000 + PATIENCE < spike_step < 2100


def test_single_bad_batches_are_not_a_spike() -> None:
    losses = training_losses(0, 3000, 0.05)
    for step in range(500, 3000, 300):
        losses[step] += 6.0
    assert first_spike(losses) is None


def test_no_spike_is_detected_in_the_first_steps_or_without_a_threshold() -> None:
    early = [4.0] * 50 + [9.0] * (SLOW_WINDOW - 51)
    assert first_spike(early) is None
    assert first_spike([4.0] * 500 + [9.0] * 500, threshold=None) is None


@pytest.mark.parametrize(
    ("rise", "expected"), [(465, 350), (560, 450), (1000, 950), (255, 0), (285, 0), (300, 250), (352, 250)]
)
def test_rollback_step_by_hand(rise: int, expected: int) -> None:
    """Checkpoints are written every 50 steps from 250 on; of these, 250, 350, 450, ... are at least 60 steps apart.

    The fast average crosses the limit with the third loss of the rise (4 x (1 - 0.95^3) = 0.57). The guard assumes that
    the spike began 41 steps before that, 39 before the rise, and chooses the newest of those checkpoints that is not
    later, or the start of the run.
    """
    guard = SpikeGuard(0.5)
    for step in range(1, 1100):
        if guard.observe(4.0 if step < rise else 8.0):
            break
        if step >= 250 and step % 50 == 0:
            guard.record_checkpoint(step)
    assert step == rise + 2 + PATIENCE - 1
    assert guard.rollback_step(step) == expected


def test_restored_guard_makes_the_same_decision() -> None:
    losses = training_losses(0, 1000, 0.1) + [8.0] * 100
    spike_step = first_spike(losses)
    for cut in (1, 150, 700, 1005, 1015):
        before, after = SpikeGuard(0.5), SpikeGuard(0.5)
        assert not any(before.observe(loss) for loss in losses[:cut])
        after.restore(before.state())
        assert spike_step == next(step for step, loss in enumerate(losses[cut:], cut + 1) if after.observe(loss))


@pytest.mark.parametrize("wrong", [{"spike_threshold": 0.0}, {"spike_threshold": -1}, {"max_rollbacks": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TrainConfig(**wrong)


# ---- runs ----


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the windows of the averages to about a tenth, so that a run of 90 steps has all phases of a long one."""
    for name, steps in SHORT_WINDOWS.items():
        monkeypatch.setattr(spike_guard, name, steps)


def add_spike(
    monkeypatch: pytest.MonkeyPatch, *, always: bool = False, at: int = SPIKE, before: Callable[[int], None] = id
) -> None:
    """Gives the softmax random weights in ten steps from `at` on: only at the full learning rate, or `always`.

    `before` is called with the number of updates so far, including repeated steps.
    """
    update, calls = Trainer.update, 0

    def spiking_update(self: Trainer, inputs: Any, step: int) -> Any:
        nonlocal calls
        calls += 1
        before(calls)
        if at <= step < at + 10 and (always or self.lr_factor == 1.0):
            randomize_softmax(self)
        return update(self, inputs, step)

    monkeypatch.setattr(Trainer, "update", spiking_update)


def step_records(out: Path) -> list[dict[str, Any]]:
    return [r for r in records(out) if "forward" in r]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.usefixtures("short_windows")
def test_spike_rolls_back_to_a_checkpoint_and_halves_the_rate(
    name: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps equal those of a run that is stopped at the checkpoint and resumed with half the learning rate."""
    optimizer = {"optim": {"name": name, "lr": 0.004}}
    run(text, tmp_path / "by-hand", LONG, CONSTANT, optimizer, train_settings(max_steps=40))
    run(text, tmp_path / "by-hand", LONG, CONSTANT, optimizer, {"optim": {"lr": 0.002}})
    status_lines: list[str] = []
    with monkeypatch.context() as patch:
        add_spike(patch)
        result = run(text, tmp_path / "run", LONG, CONSTANT, optimizer, say=status_lines.append)
    assert result.train.step == 90
    rollbacks = [r for r in records(tmp_path / "run") if "rollback" in r]
    assert [(r["step"], r["rollback"]["number"], r["rollback"]["lr_factor"]) for r in rollbacks] == [(40, 1, 0.5)]
    assert SPIKE < rollbacks[0]["rollback"]["from_step"] < SPIKE + 10
    assert any("back to step 40" in line for line in status_lines)
    actual, expected = step_records(tmp_path / "run"), step_records(tmp_path / "by-hand")
    assert [r["step"] for r in actual] == list(range(1, 91))
    assert [r["lr"] for r in actual] == [0.004] * 40 + [0.002] * 50
    assert actual == expected


@pytest.mark.parametrize("changes", [{"recipe": "paper"}, {"optim": {"name": "muon"}}, {}])
@pytest.mark.usefixtures("short_windows")
def test_spike_before_the_first_checkpoint_rolls_back_to_the_start(
    changes: dict[str, Any], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_checkpoints = train_settings(max_steps=70, checkpoint_every=1000, validate_every=0)
    half = {"optim": {"lr": 0.1 if "recipe" in changes else 0.002}}
    run(text, tmp_path / "half", no_checkpoints, changes, half)
    with monkeypatch.context() as patch:
        add_spike(patch, at=50)
        run(text, tmp_path / "run", no_checkpoints, changes)
    assert [r["step"] for r in records(tmp_path / "run") if "rollback" in r] == [0]
    assert step_records(tmp_path / "run") == step_records(tmp_path / "half")


def test_ordinary_run_is_bit_identical_with_and_without_the_guard(text: Path, tmp_path: Path) -> None:
    longer = train_settings(max_steps=160, checkpoint_every=80, validate_every=80)
    run(text, tmp_path / "on", longer)
    run(text, tmp_path / "off", longer, train_settings(spike_threshold=None))
    assert digest(tmp_path / "on") == digest(tmp_path / "off")


@pytest.mark.usefixtures("short_windows")
def test_spike_is_ignored_without_a_threshold(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_spike(monkeypatch)
    run(text, tmp_path / "run", LONG, train_settings(spike_threshold=None))
    assert not [r for r in records(tmp_path / "run") if "rollback" in r]


@pytest.mark.usefixtures("short_windows")
def test_too_many_rollbacks_end_the_run(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_spike(monkeypatch, always=True)
    with pytest.raises(ElmoError, match="After 2 rollbacks") as error:
        run(text, tmp_path / "run", LONG, train_settings(max_rollbacks=2))
    assert "learning rate" in error.value.hint
    factors = [r["rollback"]["lr_factor"] for r in records(tmp_path / "run") if "rollback" in r]
    assert factors == [0.5, 0.25]


def test_old_checkpoint_without_guard_state_is_resumed(text: Path, tmp_path: Path) -> None:
    run(text, tmp_path / "run", train_settings(max_steps=20))
    path = tmp_path / "run" / "checkpoints" / "step-00000020"
    weights, training, manifest = checkpoint.load_checkpoint(path)
    del training["spike_guard"]
    about = {key: manifest[key] for key in ("identity", "settings")}
    checkpoint.save_checkpoint(path.parent, 20, weights, training, about)
    assert run(text, tmp_path / "run", train_settings(max_steps=40)).train.step == 40


# ---- interruptions around a spike ----


class InterruptedRunError(Exception):
    """Simulates a killed process."""


@pytest.fixture(scope="module")
def uninterrupted(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a spike and without interruption."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        for name, steps in SHORT_WINDOWS.items():
            patch.setattr(spike_guard, name, steps)
        add_spike(patch)
        run(text, out, LONG)
    assert [r["step"] for r in records(out) if "rollback" in r] == [40]
    return out


@pytest.mark.parametrize("call", [69, *(pytest.param(call, marks=pytest.mark.slow) for call in (62, 72, 75, 85, 105))])
@pytest.mark.usefixtures("short_windows")
def test_run_interrupted_around_a_spike_ends_bit_identical(
    call: int, text: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before the spike, in it after a checkpoint, after the rollback, and after the next checkpoint."""

    def interrupt(count: int) -> None:
        if count == call:
            raise InterruptedRunError

    with monkeypatch.context() as patch:
        add_spike(patch, before=interrupt)
        with pytest.raises(InterruptedRunError):
            run(text, tmp_path / "run", LONG)
    add_spike(monkeypatch)
    run(text, tmp_path / "run", LONG)
    assert digest(tmp_path / "run") == digest(uninterrupted)


@pytest.mark.parametrize("name", ["save_checkpoint", "prune_checkpoints"])
@pytest.mark.usefixtures("short_windows")
def test_run_interrupted_in_a_rollback_ends_bit_identical(
    name: str, text: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted just before the checkpoint is overwritten with the new learning rate, and just after."""
    original, steps = getattr(checkpoint, name), []

    def interrupt(*args: Any) -> Any:
        step = args[1] if name == "save_checkpoint" else args[2]
        steps.append(step)
        if steps.count(40) == 2:
            raise InterruptedRunError
        return original(*args)

    with monkeypatch.context() as patch:
        add_spike(patch)
        patch.setattr(checkpoint, name, interrupt)
        with pytest.raises(InterruptedRunError):
            run(text, tmp_path / "run", LONG)
    add_spike(monkeypatch)
    run(text, tmp_path / "run", LONG)
    assert digest(tmp_path / "run") == digest(uninterrupted)


@pytest.mark.usefixtures("short_windows")
def test_stop_in_a_spike_does_not_change_the_rollback_step(
    text: Path, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that reaches a limit in the spike saves a checkpoint there; the run still rolls back to step 40."""
    add_spike(monkeypatch)
    stop = train_settings(max_tokens=20 * 68)  # 20 tokens per step
    assert run(text, tmp_path / "run", LONG, stop).train.step == 68
    run(text, tmp_path / "run", LONG)
    without_validations = [r for r in records(tmp_path / "run") if "validation" not in r]
    assert without_validations == [r for r in records(uninterrupted) if "validation" not in r]


@pytest.mark.slow("kills")
def test_run_killed_around_a_spike_ends_bit_identical(tmp_path: Path, record_property: Any) -> None:
    record_property("kills", drive("spike", tmp_path, 1))
