"""The estimated duration of a run: arithmetic, presets, wording, and that the measurement leaves no trace."""

from __future__ import annotations

import gc
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_run import records, run, settings, train_settings, write_text

from elmo.devices import free_memory
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS
from elmo.pretrain.config import RunConfig, make_config, model_config_for_vocab
from elmo.pretrain.data.prepared import open_prepared
from elmo.pretrain.duration import (
    THIS_RUN,
    Duration,
    TextSize,
    describe_duration,
    describe_presets,
    estimate_durations,
    first_step,
    last_step,
    run_duration,
    run_name,
)
from elmo.pretrain.estimate import estimate
from elmo.pretrain.job import identity
from elmo.pretrain.memory import training_memory
from elmo.pretrain.train.loop import train
from elmo.pretrain.train.objective import MAX_LOGITS
from elmo.pretrain.train.step import Trainer
from elmo.pretrain.train.step_inputs import step_seed
from elmo.pretrain.train.step_timing import TIME_LIMIT, measure_step, training_flops
from elmo.pretrain.train.type_inputs import input_rows
from elmo.progress import approximate_duration
from elmo.settings import read_toml

TEXT = TextSize(positions=1000, heldout_positions=100, vocab_size=63)
PRECISION = {"train": {"precision": "float32"}}


class Clock:
    """A clock that advances by `tick` seconds whenever it is read, and counts how often."""

    def __init__(self, tick: float) -> None:
        self.tick, self.num_reads = tick, 0

    def __call__(self) -> float:
        self.num_reads += 1
        return self.tick * self.num_reads


def measured(config: RunConfig, tick: float = 0.05, num_steps: int = 10_000) -> tuple[float, float]:
    """The measured seconds of a step, and the seconds that the measurement took, on a clock that counts reads."""
    clock = Clock(tick)
    seconds = measure_step(config, model_config_for_vocab(config, 63), "cpu", num_steps=num_steps, clock=clock)
    return seconds, clock.num_reads * tick


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"train": {"precision": "bfloat16"}},
        {"train": {"rows": 3, "steps": 1}},
        {"train": {"rows": 8, "accumulate": 4}},
        {"train": {"reset": 0.0}},
        {"train": {"head_only_steps": 100}},
        {"optim": {"name": "muon"}},
        {"recipe": "paper", "objective": {"num_samples": 16}},
        {"objective": {"softmax": "full"}},
        {"objective": {"softmax": "adaptive", "cutoffs": [20]}},
        {"model": {"bidirectional": False}},
    ],
    ids=str,
)
def test_every_kind_of_run_is_measured(change: dict[str, Any]) -> None:
    seconds, _ = measured(settings("text", PRECISION, change))
    assert seconds == pytest.approx(0.05)  # the clock is read before and after each step


def test_word_input_and_a_tied_softmax_are_measured() -> None:
    objective = {"softmax": "full", "tied": True}
    config = make_config({"preset": "tiny", "objective": objective, "train": {"rows": 2, "steps": 3}}, words=True)
    assert measured(config)[0] == pytest.approx(0.05)


def test_measurement_ends_after_its_time_limit() -> None:
    _, elapsed = measured(settings("text", PRECISION), num_steps=1_000_000)
    assert TIME_LIMIT / 2 < elapsed <= TIME_LIMIT + 1


def test_measurement_of_a_short_run_takes_a_small_share_of_it() -> None:
    """100 steps of 0.01 s: the measurement takes 0.05 s after its short batches, and not two seconds."""
    assert measured(settings("text", PRECISION), tick=0.01, num_steps=100)[1] < 0.5


def test_first_step_of_a_batch_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It allocates memory: here the first full step takes 1.5 s and each of the others 0.5 s."""
    now = 0.0

    def update(trainer: Trainer, inputs: Any, step: int) -> None:
        nonlocal now
        full = trainer.config.train.steps == 5
        now += (1.5 if step == 0 else 0.5) if full else 0.1

    monkeypatch.setattr(Trainer, "update", update)
    config = settings("text", PRECISION, {"train": {"rows": 4, "steps": 5}})
    seconds = measure_step(config, model_config_for_vocab(config, 63), "cpu", num_steps=10_000, clock=lambda: now)
    assert seconds == pytest.approx(0.5)


def test_long_steps_are_extrapolated_from_short_batches() -> None:
    """Every step takes 4 s of this clock whatever its size, so the slope has its minimum: a quarter of 4 s / 8 tokens.

    The batches are of 4 x 1 and 4 x 2 tokens. A step of 4 x 5 tokens takes 4 s + 12 x 0.125 s.
    """
    seconds, elapsed = measured(settings("text", PRECISION), tick=4.0)
    assert seconds == pytest.approx(5.5)
    assert elapsed < 60  # two warm-ups and two measured steps, and none of the full size


def global_state() -> list[Any]:
    """What a measurement must not change in this process."""
    torch_state, numpy_state = torch.get_rng_state().numpy().tobytes(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]  # the state is a tuple
    flags = [torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()]
    gc.collect()
    num_tensors = sum(issubclass(type(value), torch.Tensor) for value in gc.get_objects())
    return [torch_state, numpy_state, random.getstate(), *flags, num_tensors]


def test_measurement_changes_no_global_state_and_frees_its_tensors(tmp_path: Path) -> None:
    config = settings("text", PRECISION)
    measured(config)  # loads kernels and caches
    before, files = global_state(), sorted(tmp_path.rglob("*"))
    measured(config)
    assert global_state() == before
    assert sorted(tmp_path.rglob("*")) == files


def test_run_is_the_same_bit_for_bit_without_the_measurement(tmp_path: Path) -> None:
    lines: list[str] = []
    run(write_text(tmp_path / "text.txt"), tmp_path / "run", say=lines.append)
    assert any(line.startswith("estimate: about") for line in lines), lines
    config, data = make_config(read_toml(tmp_path / "run" / "config.toml")), open_prepared(tmp_path / "run" / "data")
    torch.manual_seed(step_seed(config.train.seed, 0, "weights"))
    model = BiLM(model_config_for_vocab(config, data.vocab_size))
    rows = input_rows(data, model.config)
    (tmp_path / "alone").mkdir()
    train(model, rows, data, config, tmp_path / "alone", identity=identity(config, data))
    assert records(tmp_path / "run") == records(tmp_path / "alone")
    for name in ("step-00000040/model.safetensors", "step-00000040/training.pt"):
        with_estimate, without = ((tmp_path / out / "checkpoints" / name).read_bytes() for out in ("run", "alone"))
        assert with_estimate == without


def test_resumed_run_says_how_long_the_remaining_steps_take(tmp_path: Path) -> None:
    text, lines = write_text(tmp_path / "text.txt"), list[str]()
    run(text, tmp_path / "run", train_settings(max_steps=10))
    run(text, tmp_path / "run", train_settings(max_steps=25), say=lines.append)
    assert any("for the remaining 15 steps" in line for line in lines), lines
    assert "for the remaining 15 steps" in estimate(settings(text, train_settings(max_steps=40)), tmp_path / "run")
    finished = list[str]()
    run(text, tmp_path / "run", train_settings(max_steps=25), say=finished.append)
    assert not any(line.startswith("estimate") for line in finished)
    plan = estimate(settings(text, train_settings(max_steps=25)), tmp_path / "run", continued=True)
    assert "has made all of its steps" in plan


def test_duration_adds_validations_and_the_final_measurement_by_hand() -> None:
    """4 x 5 tokens in 2 s; a held-out token costs a third, because the full softmax scores as many words as training.

    A pass over 100 held-out positions takes 100 / 3 / 10 s, and each measurement makes two. There is a validation every
    15 steps and one at the end, and the final measurement.
    """
    layers = {"objective": {"softmax": "full"}}, {"train": {"validate_every": 15}}
    config = settings("text", *layers)
    model = model_config_for_vocab(config, TEXT.vocab_size)
    result = run_duration(config, model, TEXT, 40, 2.0)
    assert result.heldout_seconds == pytest.approx((2 + 1 + 1) * 2 * 100 / 3 / 10)
    assert result.seconds == pytest.approx(40 * 2.0 + result.heldout_seconds)
    by_time = replace(
        config, train=replace(config.train, validate_minutes=0.2)
    )  # 12 s, but at most a fifth of the time
    assert run_duration(by_time, model, TEXT, 40, 2.0).heldout_seconds == pytest.approx((3 + 1 + 1) * 2 * 100 / 3 / 10)
    without_heldout = run_duration(config, model, replace(TEXT, heldout_positions=0), 40, 2.0)
    assert without_heldout.heldout_seconds == 0


def test_steps_of_a_run_end_with_its_epochs_or_its_tokens(tmp_path: Path) -> None:
    config = settings("text", train_settings(max_steps=0, epochs=3.0))
    assert last_step(config, TEXT) == 150  # 3 x 1,000 / 20
    assert last_step(replace(config, train=replace(config.train, max_tokens=410)), TEXT) == 21
    assert first_step(tmp_path) == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (59, "59 s"), (59.9, "1 min"), (1500, "25 min"), (3580, "1 h"), (7790, "2 h 10 min")]
    + [(11_000, "3 h"), (35_900, "10 h"), (100_000, "28 h"), (260_000, "3 days")],
)
def test_estimated_durations_are_rounded(seconds: float, words: str) -> None:
    assert approximate_duration(seconds) == words


def test_description_names_speed_time_and_limits() -> None:
    config = settings("text", train_settings(stop_after=600.0))
    line = describe_duration(config, Duration(1000, 2.0, 1000.0), is_resumed=False)
    assert line == (
        "about 10 tokens/s, about 50 min for the run, 17 min of it for held-out perplexity; "
        "this call stops after 10 min (--stop-after)"
    )


def test_presets_line_suggests_the_largest_that_ends_within_an_hour_and_a_night() -> None:
    hours = {"tiny": 0.4, "small": 2.2, "medium": 9.0}
    durations = {name: Duration(3600, value, 0.0) for name, value in hours.items()}
    assert describe_presets(durations, "small") == (
        "tiny about 24 min, small about 2 h 10 min (this run), medium about 9 h; within an hour: tiny, within a night: "
        "small"
    )
    slow = {name: Duration(3600, 10.0, 0.0) for name in ("tiny", THIS_RUN)}
    line = describe_presets(slow, THIS_RUN)
    assert line.endswith("within an hour: none, within a night: none; fewer --epochs take less time")
    assert "this run about 10 h;" in line


def test_presets_are_scaled_by_their_operations_and_cheap_ones_measured() -> None:
    """Every step takes 1 s on this clock; the other presets would take too long to be measured."""
    config = make_config({"preset": "tiny", "train": {"rows": 2, "steps": 2, "device": "cpu"}})
    durations = estimate_durations(config, TEXT, "cpu", 1000, presets_above=0.0, clock=Clock(1.0))
    assert list(durations) == list(PRESETS)
    tiny, small = (model_config_for_vocab(replace(config, model=PRESETS[p]), 63) for p in ("tiny", "small"))
    ratio = training_flops(config, small) / training_flops(config, tiny)
    assert durations["small"].step_seconds == pytest.approx(ratio * durations["tiny"].step_seconds)
    config = replace(config, model=PRESETS["small"])  # tiny is measured as well, because it takes a fraction of that
    durations = estimate_durations(config, TEXT, "cpu", 1000, presets_above=0.0, clock=Clock(0.6))
    assert durations["tiny"].step_seconds == pytest.approx(0.6)
    assert durations["medium"].step_seconds > 1 > durations["small"].step_seconds == pytest.approx(0.6)


def test_presets_are_left_out_for_short_runs_and_on_request() -> None:
    config = make_config({"preset": "tiny", "train": {"rows": 2, "steps": 2, "device": "cpu"}})
    for presets_above in (None, 1e9):
        durations = estimate_durations(config, TEXT, "cpu", 1000, presets_above=presets_above, clock=Clock(1.0))
        assert list(durations) == ["tiny"]


def test_model_that_does_not_fit_into_memory_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^28 words: the softmax alone has 17 billion weights, and the presets still get a time."""
    config = make_config({"preset": "original", "train": {"rows": 2, "steps": 2, "device": "cpu"}})
    assert training_memory(config, model_config_for_vocab(config, 1 << 28)) > 1e12
    monkeypatch.setattr("elmo.pretrain.duration.free_memory", lambda device: 1e6)
    durations = estimate_durations(config, TEXT, "cpu", 10, presets_above=None, clock=Clock(1.0))
    models = [model_config_for_vocab(replace(config, model=PRESETS[name]), 63) for name in ("original", "tiny")]
    ratio = training_flops(config, models[0]) / training_flops(config, models[1])
    assert durations["original"].step_seconds == pytest.approx(ratio * 1.0)


def test_memory_of_the_full_softmax_is_bounded_by_its_blocks() -> None:
    """100,000 words x 2 x 128 x 20 positions are 512 million logits, of which one block at a time is computed."""

    def memory(vocab_size: int = 100_000, **objective: Any) -> int:
        config = make_config({"preset": "tiny", "objective": objective})
        return training_memory(config, model_config_for_vocab(config, vocab_size))

    full, sampled = memory(softmax="full"), memory(num_samples=8192)
    assert 3 * 4 * MAX_LOGITS < full < 3 * 4 * MAX_LOGITS + memory(num_samples=1)
    assert sampled - memory(num_samples=1) == 3 * 4 * 5120 * 8191
    assert memory(num_samples=200_000) == full  # no word is left out
    assert memory(1000, softmax="full") == memory(1000, num_samples=1) + 3 * 4 * 5120 * 999  # less than a block


@pytest.mark.parametrize("cutoffs", [[], [2000], [500, 3000, 20_000]])
def test_memory_of_an_adaptive_softmax_counts_the_words_of_its_clusters(cutoffs: list[int]) -> None:
    """Compared with the expected number for words that follow Zipf's law."""

    def bytes_of_128_rows(**objective: Any) -> int:  # without the weights
        configs = [make_config({"objective": objective, "train": {"rows": rows}}) for rows in (128, 256)]
        one, two = (training_memory(config, model_config_for_vocab(config, 50_000)) for config in configs)
        return two - one

    adaptive = bytes_of_128_rows(softmax="adaptive", cutoffs=cutoffs)
    logits = (adaptive - bytes_of_128_rows(num_samples=1)) / (3 * 4 * 5120) + 1  # of one position
    probabilities = 1 / np.arange(1, 50_001)
    probabilities /= probabilities.sum()
    starts = [*(cutoffs or [5000, 25_000]), 50_000]
    scored = [(end - start) * probabilities[start:end].sum() for start, end in itertools.pairwise(starts)]
    assert logits == pytest.approx(starts[0] + len(scored) + sum(scored), rel=0.1)


def test_presets_take_over_the_input_of_the_run() -> None:
    words = make_config({"preset": "tiny", "train": {"rows": 2, "steps": 2, "device": "cpu"}}, words=True)
    assert run_name(words) == "tiny"
    assert list(estimate_durations(words, TEXT, "cpu", 9, presets_above=0.0, clock=Clock(1.0))) == list(PRESETS)
    own = settings("text", {"model": {"chars": {"max_chars": 5}}})
    assert run_name(own) == THIS_RUN
    assert set(estimate_durations(own, TEXT, "cpu", 9, presets_above=0.0, clock=Clock(1.0))) == {*PRESETS, THIS_RUN}


def test_free_memory_of_the_processor_is_a_positive_number() -> None:
    assert free_memory("cpu") > 0
