"""Throughput, prefetching of batches and signal handling of the training loop."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_run import run, settings, write_text

from elmo.errors import DataError, ElmoError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, HeadConfig, LSTMConfig
from elmo.pretrain.config import make_config
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.stream import ContinuousStream, LMBatch
from elmo.pretrain.train.prefetch import Prefetcher
from elmo.pretrain.train.spike_guard import SpikeGuard
from elmo.pretrain.train.step import StepMetrics, Trainer
from elmo.pretrain.train.throughput import ThroughputMeter, flops_per_token
from elmo.stop_signals import StopSignals


def test_flops_per_token_by_hand() -> None:
    """Two directions, one layer: 2 x (4 x 3 x 4 x 10 + 2 x 10 x 3), softmax 2 x 2 x 3 x 100; backward: twice that."""
    config = BiLMConfig(
        chars=CharConfig(filters=((1, 5),), char_dim=2, num_highways=1),
        lstm=LSTMConfig(num_layers=1, cell_dim=10, proj_dim=3),
    )
    lstm, softmax = 2 * (4 * 3 * 4 * 10 + 2 * 10 * 3), 2 * 2 * 3 * 100
    token = 2 * 5 * 3 + 2 * 1 * 2 * 5 * 14 + 4 * 5**2  # projection, windows of 14 characters, highway
    assert flops_per_token(config, 100, distinct=1.0) == 3 * (lstm + softmax + token)
    assert flops_per_token(config, 100, distinct=0.0) == 3 * (lstm + softmax)


def test_meter_counts_pauses_for_the_time_left_and_not_for_the_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    config = make_config({"preset": "tiny", "train": {"rows": 10, "steps": 20, "max_steps": 100, "stop_after": 1000.0}})
    model = BiLM(BiLMConfig(chars=config.model.chars, lstm=config.model.lstm, head=HeadConfig(vocab_size=50)))
    meter = ThroughputMeter(config, Trainer(model, torch.zeros(1, 50, dtype=torch.int32), config), 0, 4000)
    metrics = StepMetrics(2.0, 3.0, 1.0, 0.1, False)
    clock[0] += 1
    assert meter.progress_line(5, metrics) is None  # the last line was a second ago
    with meter.paused():
        clock[0] += 500
    clock[0] += 9
    line = meter.progress_line(50, metrics)
    assert line is not None
    assert "step 50/100 epoch 2.50" in line  # 50 x 200 of 4000
    assert "loss fwd 2.000 bwd 3.000" in line
    assert "1,000 tokens/s" in line  # 10,000 tokens in 10 seconds
    assert "8:10 left" in line  # until stop_after; at 509 seconds per 45 steps, 50 more steps take 9:26
    assert meter.elapsed == 510
    assert meter.tokens_per_second(50) == pytest.approx(1000)


def test_time_left_is_that_of_the_run_so_far_without_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded clock of a run of 100 steps: 60 seconds for the first, then 2 per step and 20 per validation.

    The time left came from the last five seconds, so it was 12 minutes at the first line and left out validations.
    """
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    config = make_config({"preset": "tiny", "train": {"rows": 1, "steps": 1, "max_steps": 100}})
    model = BiLM(BiLMConfig(chars=config.model.chars, lstm=config.model.lstm, head=HeadConfig(vocab_size=50)))
    meter = ThroughputMeter(config, Trainer(model, torch.zeros(1, 50, dtype=torch.int32), config), 0, 4000)
    lines = {}
    for step in range(1, 101):
        clock[0] += 60 if step == 1 else 2
        lines[step] = meter.progress_line(step, StepMetrics(2.0, 3.0, 1.0, 0.1, False)) or ""
        if step % 10 == 0:
            with meter.paused():
                clock[0] += 20
    assert lines[1].endswith("tokens/s"), "nothing is known after the first step"
    left = {step: line.rsplit(" ", 2)[1] for step, line in lines.items() if line.endswith("left")}
    minutes = {
        step: int(text.split(":")[0]) + int(text.split(":")[1]) / 60 for step, text in left.items() if ":" in text
    }
    # ahead of each line: steps of 2 seconds, and validations after step, if it is due, and before the last step
    true_minutes = {step: (2 * (100 - step) + 20 * len(range(-(-step // 10), 10))) / 60 for step in minutes}
    late = [step for step in minutes if step > 20]
    assert late
    validation = 20 / 60
    for step in late:
        assert abs(minutes[step] - true_minutes[step]) <= max(0.2 * true_minutes[step], validation), (step, minutes)


def test_progress_line_of_a_one_direction_model_has_one_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    config = make_config({"preset": "tiny", "model": {"bidirectional": False}, "train": {"max_steps": 1}})
    model = BiLM(replace(config.model, head=HeadConfig(vocab_size=50)))
    meter = ThroughputMeter(config, Trainer(model, torch.zeros(1, 50, dtype=torch.int32), config), 0, 4000)
    line = meter.progress_line(1, StepMetrics(2.0, 2.0, 1.0, 0.1, False))
    assert line is not None
    assert "loss fwd 2.000 lr" in line


def test_prefetched_batches_equal_the_stream_and_carry_its_state(tmp_path: Path) -> None:
    config = settings(write_text(tmp_path / "text.txt"))
    data = prepare(config.data, tmp_path / "data", num_workers=1)
    stream = ContinuousStream(data, 4, 5, seed=3)
    with Prefetcher(ContinuousStream(data, 4, 5, seed=3), lambda batch: batch) as batches:
        for _ in range(50):
            batch, stream_state = batches.next()
            assert np.array_equal(batch.forward.inputs, next(stream).forward.inputs)
            assert stream_state["num_batches"] == stream.num_batches
    restored = ContinuousStream(data, 4, 5, seed=3)
    restored.restore(stream_state)
    assert np.array_equal(next(restored).backward.targets, next(stream).backward.targets)
    assert not any(thread.name == "elmo-batches" for thread in threading.enumerate())


def test_error_of_the_stream_is_raised_by_next(tmp_path: Path) -> None:
    config = settings(write_text(tmp_path / "text.txt"))
    data = prepare(config.data, tmp_path / "data", num_workers=1)

    class FailingStream(ContinuousStream):
        def __next__(self) -> LMBatch:
            if self.num_batches == 2:
                raise DataError("a shard is gone")
            return super().__next__()

    with Prefetcher(FailingStream(data, 4, 5), lambda batch: batch) as batches:
        batches.next()
        batches.next()
        with pytest.raises(DataError, match="a shard is gone"):
            batches.next()


def test_a_thread_that_does_not_end_is_an_error_before_the_stream_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spike of the loss ends the batches, and the thread that prepares them is still busy."""
    released, make_inputs = threading.Event(), Trainer.make_inputs
    monkeypatch.setattr("elmo.pretrain.train.prefetch.CLOSE_TIMEOUT", 0.1)
    restored: list[dict[str, Any]] = []
    monkeypatch.setattr(ContinuousStream, "restore", lambda stream, state: restored.append(state))
    monkeypatch.setattr(SpikeGuard, "observe", lambda guard, loss: True)

    def slow_inputs(trainer: Trainer, batch: LMBatch, step: int) -> Any:
        if step and threading.current_thread().name == "elmo-batches":
            released.wait()
        return make_inputs(trainer, batch, step)

    monkeypatch.setattr(Trainer, "make_inputs", slow_inputs)
    try:
        with pytest.raises(ElmoError, match="A background thread still reads text"):
            run(write_text(tmp_path / "text.txt"), tmp_path / "run")
    finally:
        released.set()
    assert not restored


def test_first_signal_is_recorded_and_the_second_interrupts() -> None:
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signal_handlers_are_not_set_outside_the_main_thread() -> None:
    received: list[int | None] = []

    def target() -> None:
        with StopSignals() as signals:
            received.append(signals.received)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert received == [None]
