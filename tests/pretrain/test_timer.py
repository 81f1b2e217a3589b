"""Validations and checkpoints by time: they happen, and they change neither the weights nor the best validation."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tiny_run import records, run, train_settings, write_text

from elmo.pretrain.config import make_config
from elmo.pretrain.train.timer import Timer

BY_TIME = train_settings(validate_minutes=0.2, checkpoint_minutes=0.3, keep=99)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that `time.monotonic` gives, to be set by the test."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_timer_is_due_after_its_minutes_and_not_before(clock: list[float]) -> None:
    timer, never = Timer(5.0), Timer(None)
    clock[0] += 299
    assert not timer.is_due()
    clock[0] += 1
    assert timer.is_due()
    with timer.running():
        clock[0] += 10
    assert not timer.is_due()
    clock[0] += 299
    assert not timer.is_due()
    clock[0] += 1
    assert timer.is_due()
    clock[0] += 1e9
    assert not never.is_due()


def test_what_takes_long_takes_at_most_a_fifth_of_the_time(clock: list[float]) -> None:
    timer = Timer(5.0)
    with timer.running():
        clock[0] += 600
    clock[0] += 2399
    assert not timer.is_due()
    clock[0] += 1
    assert timer.is_due()


def test_five_minutes_are_the_default_and_both_can_be_off() -> None:
    train = make_config({}).train
    assert (train.validate_minutes, train.checkpoint_minutes) == (5.0, 5.0)
    off = make_config({"train": {"validate_minutes": "off", "checkpoint_minutes": "off"}}).train
    assert (off.validate_minutes, off.checkpoint_minutes) == (None, None)


def weights(out: Path) -> list[tuple[str, bytes]]:
    """The exported weights and those of the last checkpoint."""
    paths = (out / "model" / "model.safetensors", out / "checkpoints" / "step-00000040" / "model.safetensors")
    return [(name, tensor.numpy().tobytes()) for path in paths for name, tensor in sorted(load_file(path).items())]


def steps_of(out: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").iterdir())


def without_timed(out: Path) -> list[dict[str, Any]]:
    return [record for record in records(out) if "by_time" not in record]


def test_slow_run_validates_and_saves_by_time_and_its_numbers_stay_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path / "text.txt")
    plain, timed = tmp_path / "plain", tmp_path / "timed"
    run(text, plain, train_settings(keep=99))
    seconds = itertools.count()  # every look at the clock takes a second
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    status_lines: list[str] = []
    result = run(text, timed, BY_TIME, say=status_lines.append)
    saved = steps_of(timed)
    validations = [record["step"] for record in records(timed) if "by_time" in record]
    assert set(saved) - {10, 20, 30, 40}, "no checkpoint by time"
    assert validations
    assert not set(validations) & {20, 40}, "those by step stay"
    assert any("(by time)" in line for line in status_lines)
    assert weights(timed) == weights(plain)
    assert without_timed(timed) == records(plain)
    assert result.train.best is not None
    assert result.train.best["step"] in (20, 40)
    # the run continues from a checkpoint that was written by time, and ends the same
    for step in saved:
        if step > next(number for number in saved if number % 10):
            shutil.rmtree(timed / "checkpoints" / f"step-{step:08d}")
    run(text, timed, BY_TIME)
    assert weights(timed) == weights(plain)


def test_validations_by_time_do_not_count_for_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    frozen = {"optim": {"lr": 1e-12}}
    settings = train_settings(patience=2, validate_every=10, validate_minutes=0.1, max_steps=200)
    result = run(write_text(tmp_path / "text.txt"), tmp_path / "run", frozen, settings)
    assert result.train.reason == "early stop"
    assert result.train.best is not None
    assert result.train.step == result.train.best["step"] + 20
    assert sum("by_time" in record for record in records(tmp_path / "run")) > 2
