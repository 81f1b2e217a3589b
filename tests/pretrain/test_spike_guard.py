"""A loss that leaves its level sends the run back to a checkpoint with half the rate; ordinary losses never do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kill_train import SHORT_WINDOWS, throw_off
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
    """The number of the loss that completes a spike."""
    guard = SpikeGuard(threshold)
    return next((number for number, loss in enumerate(losses, 1) if guard.observe(loss)), None)


# ---- what is a spike ----


def training_losses(seed: int, num_steps: int, noise: float) -> list[float]:
    """From 9 nats down to 4 over the run, 0.2 lower at each of five epochs' starts, with text that drifts slowly."""
    chance, drift, losses = random.Random(seed), 0.0, []
    for step in range(num_steps):
        drift = 0.9 * drift + chance.gauss(0, 0.2 * noise)
        epoch = step * 5 // num_steps
        losses.append(4 + 5 * math.exp(-step / (num_steps / 20)) - 0.2 * epoch + drift + chance.gauss(0, noise))
    return losses


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("num_steps", [300, 3000, 30_000])
def test_an_ordinary_run_has_no_spike(noise: float, num_steps: int) -> None:
    for seed in range(3):
        assert first_spike(training_losses(seed, num_steps, noise)) is None


def test_a_long_level_run_of_tiny_batches_has_no_spike() -> None:
    chance = random.Random(0)
    assert first_spike([4 + chance.gauss(0, 1.5) for _ in range(100_000)]) is None


@pytest.mark.parametrize("rise", [0.7, 2.0, 10.0])
def test_a_rise_that_stays_is_a_spike_soon(rise: float) -> None:
    losses = training_losses(0, 3000, 0.05)
    found = first_spike(losses[:2000] + [loss + rise for loss in losses[2000:]])
    assert found is not None
    assert 2000 + PATIENCE < found < 2100


def test_single_bad_batches_are_no_spike() -> None:
    losses = training_losses(0, 3000, 0.05)
    for step in range(500, 3000, 300):
        losses[step] += 6.0
    assert first_spike(losses) is None


def test_nothing_is_a_spike_before_there_is_a_level_or_where_it_is_off() -> None:
    early = [4.0] * 50 + [9.0] * (SLOW_WINDOW - 51)
    assert first_spike(early) is None
    assert first_spike([4.0] * 500 + [9.0] * 500, threshold=None) is None


@pytest.mark.parametrize(
    ("rise", "wanted"), [(465, 350), (560, 450), (1000, 950), (255, 0), (285, 0), (300, 250), (352, 250)]
)
def test_where_to_return_by_hand(rise: int, wanted: int) -> None:
    """Checkpoints every 50 steps from 250 on, of which 250, 350, 450, ... are 60 or more apart.

    The fast average crosses the limit with the third loss of the rise (4 x (1 - 0.95^3) = 0.57), and the spike is dated
    41 steps before that, 39 before the rise: the newest of those checkpoints that is not younger, or the beginning.
    """
    guard = SpikeGuard(0.5)
    for step in range(1, 1100):
        if guard.observe(4.0 if step < rise else 8.0):
            break
        if step >= 250 and step % 50 == 0:
            guard.record_checkpoint(step)
    assert step == rise + 2 + PATIENCE - 1
    assert guard.rollback_step(step) == wanted


def test_a_saved_guard_decides_the_same() -> None:
    losses = training_losses(0, 1000, 0.1) + [8.0] * 100
    whole = first_spike(losses)
    for cut in (1, 150, 700, 1005, 1015):
        before, after = SpikeGuard(0.5), SpikeGuard(0.5)
        assert not any(before.observe(loss) for loss in losses[:cut])
        after.restore(before.state())
        found = next(number for number, loss in enumerate(losses[cut:], cut + 1) if after.observe(loss))
        assert found == whole


@pytest.mark.parametrize("wrong", [{"spike_threshold": 0.0}, {"spike_threshold": -1}, {"max_rollbacks": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TrainConfig(**wrong)


# ---- runs ----


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averages of a tenth of their span, so that a run of 90 steps has all the parts of a long one."""
    for name, steps in SHORT_WINDOWS.items():
        monkeypatch.setattr(spike_guard, name, steps)


def spiking(
    monkeypatch: pytest.MonkeyPatch, *, always: bool = False, at: int = SPIKE, before: Callable[[int], None] = id
) -> None:
    """Ten steps from `at` on have a wild softmax: at the full rate only, or `always`.

    `before` gets the count of each step, those that are repeated included.
    """
    update, calls = Trainer.update, 0

    def wild(self: Trainer, inputs: Any, number: int) -> Any:
        nonlocal calls
        calls += 1
        before(calls)
        if at <= number < at + 10 and (always or self.lr_factor == 1.0):
            throw_off(self)
        return update(self, inputs, number)

    monkeypatch.setattr(Trainer, "update", wild)


def steps_of(out: Path) -> list[dict[str, Any]]:
    return [r for r in records(out) if "forward" in r]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.usefixtures("short_windows")
def test_a_spike_returns_to_a_checkpoint_and_goes_on_with_half_the_rate(
    name: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as a run that stops at the checkpoint and goes on with half the rate by itself."""
    optimizer = {"optim": {"name": name, "lr": 0.004}}
    run(text, tmp_path / "by-hand", LONG, CONSTANT, optimizer, train_settings(max_steps=40))
    run(text, tmp_path / "by-hand", LONG, CONSTANT, optimizer, {"optim": {"lr": 0.002}})
    said: list[str] = []
    with monkeypatch.context() as patch:
        spiking(patch)
        result = run(text, tmp_path / "run", LONG, CONSTANT, optimizer, say=said.append)
    assert result.train.step == 90
    rollbacks = [r for r in records(tmp_path / "run") if "rollback" in r]
    assert [(r["step"], r["rollback"]["number"], r["rollback"]["lr_factor"]) for r in rollbacks] == [(40, 1, 0.5)]
    assert SPIKE < rollbacks[0]["rollback"]["from_step"] < SPIKE + 10
    assert any("back to step 40" in line for line in said)
    found, wanted = steps_of(tmp_path / "run"), steps_of(tmp_path / "by-hand")
    assert [r["step"] for r in found] == list(range(1, 91))
    assert [r["lr"] for r in found] == [0.004] * 40 + [0.002] * 50
    assert found == wanted


@pytest.mark.parametrize("changes", [{"recipe": "paper"}, {"optim": {"name": "muon"}}, {}])
@pytest.mark.usefixtures("short_windows")
def test_a_spike_before_the_first_checkpoint_returns_to_the_beginning(
    changes: dict[str, Any], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = train_settings(max_steps=70, checkpoint_every=1000, validate_every=0)
    half = {"optim": {"lr": 0.1 if "recipe" in changes else 0.002}}
    run(text, tmp_path / "half", late, changes, half)
    with monkeypatch.context() as patch:
        spiking(patch, at=50)
        run(text, tmp_path / "run", late, changes)
    assert [r["step"] for r in records(tmp_path / "run") if "rollback" in r] == [0]
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "half")


def test_an_ordinary_run_is_the_same_with_and_without_the_guard(text: Path, tmp_path: Path) -> None:
    longer = train_settings(max_steps=300, checkpoint_every=100, validate_every=100)
    run(text, tmp_path / "on", longer)
    run(text, tmp_path / "off", longer, train_settings(spike_threshold=None))
    assert digest(tmp_path / "on") == digest(tmp_path / "off")


@pytest.mark.usefixtures("short_windows")
def test_off_lets_a_spike_pass(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spiking(monkeypatch)
    run(text, tmp_path / "run", LONG, train_settings(spike_threshold=None))
    assert not [r for r in records(tmp_path / "run") if "rollback" in r]


@pytest.mark.usefixtures("short_windows")
def test_a_run_gives_up_after_too_many_returns(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spiking(monkeypatch, always=True)
    with pytest.raises(ElmoError, match="After 2 rollbacks") as error:
        run(text, tmp_path / "run", LONG, train_settings(max_rollbacks=2))
    assert "learning rate" in error.value.hint
    factors = [r["rollback"]["lr_factor"] for r in records(tmp_path / "run") if "rollback" in r]
    assert factors == [0.5, 0.25]


def test_old_checkpoints_without_a_guard_are_continued(text: Path, tmp_path: Path) -> None:
    run(text, tmp_path / "run", train_settings(max_steps=20))
    path = tmp_path / "run" / "checkpoints" / "step-00000020"
    weights, training, manifest = checkpoint.load_checkpoint(path)
    del training["spike_guard"]
    about = {key: manifest[key] for key in ("identity", "settings")}
    checkpoint.save_checkpoint(path.parent, 20, weights, training, about)
    assert run(text, tmp_path / "run", train_settings(max_steps=40)).train.step == 40


# ---- cut off in the middle ----


class CutOffError(Exception):
    """Stands for a process that is gone."""


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a spike that nobody cut off."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        for name, steps in SHORT_WINDOWS.items():
            patch.setattr(spike_guard, name, steps)
        spiking(patch)
        run(text, out, LONG)
    assert [r["step"] for r in records(out) if "rollback" in r] == [40]
    return out


@pytest.mark.parametrize("call", [62, 69, 72, 75, 85, 105])
@pytest.mark.usefixtures("short_windows")
def test_a_run_cut_off_around_a_spike_ends_with_the_same_bits(
    call: int, text: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it, in it after a checkpoint, after the return, after the next checkpoint."""

    def cut_off(count: int) -> None:
        if count == call:
            raise CutOffError

    with monkeypatch.context() as patch:
        spiking(patch, before=cut_off)
        with pytest.raises(CutOffError):
            run(text, tmp_path / "run", LONG)
    spiking(monkeypatch)
    run(text, tmp_path / "run", LONG)
    assert digest(tmp_path / "run") == digest(whole)


@pytest.mark.parametrize("name", ["save_checkpoint", "prune_checkpoints"])
@pytest.mark.usefixtures("short_windows")
def test_a_run_cut_off_while_it_returns_ends_with_the_same_bits(
    name: str, text: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before the checkpoint is written again with the new rate, and just after."""
    done, seen = getattr(checkpoint, name), []

    def cut_off(*args: Any) -> Any:
        step = args[1] if name == "save_checkpoint" else args[2]
        seen.append(step)
        if seen.count(40) == 2:
            raise CutOffError
        return done(*args)

    with monkeypatch.context() as patch:
        spiking(patch)
        patch.setattr(checkpoint, name, cut_off)
        with pytest.raises(CutOffError):
            run(text, tmp_path / "run", LONG)
    spiking(monkeypatch)
    run(text, tmp_path / "run", LONG)
    assert digest(tmp_path / "run") == digest(whole)


@pytest.mark.usefixtures("short_windows")
def test_a_stop_in_a_spike_does_not_change_where_it_returns(
    text: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that ends by itself saves wherever it is, here in the spike: still the run goes back to step 40."""
    spiking(monkeypatch)
    stop = train_settings(max_tokens=20 * 68)  # 20 tokens a step
    assert run(text, tmp_path / "run", LONG, stop).train.step == 68
    run(text, tmp_path / "run", LONG)
    rows = [r for r in records(tmp_path / "run") if "validation" not in r]
    assert rows == [r for r in records(whole) if "validation" not in r]


def test_killed_at_steps_around_a_spike_ends_with_the_same_bits(tmp_path: Path) -> None:
    drive("spike", tmp_path, 1)
