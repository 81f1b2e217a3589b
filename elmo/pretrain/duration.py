"""How long a run takes on this machine, and which preset ends within an hour or within a night.

The seconds of a step are measured (`train.step_timing`); validations and the final measurement are added by their
floating-point operations. `estimate` prints the result for `--dry-run`, `job` when a run starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from elmo.devices import free_memory
from elmo.model.config import PRESETS, BiLMConfig, WordConfig
from elmo.pretrain.config import RunConfig, model_config_for_vocab, num_steps, resolve_precision
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.memory import training_memory
from elmo.pretrain.train import distributed
from elmo.pretrain.train.step_timing import DISTINCT_WORDS, TIME_LIMIT, Clock, measure_step, training_flops
from elmo.pretrain.train.throughput import flops_per_token
from elmo.pretrain.train.timer import MAX_SHARE
from elmo.progress import approximate_duration
from elmo.weights.checkpoint_folder import list_checkpoints, step_of

HOUR, NIGHT = 3600.0, 8 * 3600.0  # seconds
THIS_RUN = "this run"  # the name of a model that is none of the presets
PRESET_TIME_LIMIT = 1.0  # seconds of a step up to which a preset is measured besides the one of the run


@dataclass(frozen=True)
class TextSize:
    """The size of the prepared text: predictions per direction in one epoch and in the held-out text, and words."""

    positions: int
    heldout_positions: int
    vocab_size: int


def prepared_size(data: PreparedData) -> TextSize:
    """The size of prepared text, exactly."""
    return TextSize(data.train.num_positions, data.heldout.num_positions, data.vocab_size)


@dataclass(frozen=True)
class Duration:
    """The estimated time of the steps that are left, and of the measurements of held-out perplexity."""

    num_steps: int
    step_seconds: float
    heldout_seconds: float

    @property
    def seconds(self) -> float:
        return self.num_steps * self.step_seconds + self.heldout_seconds


def first_step(out: Path) -> int:
    """The step from which a run in the folder `out` continues: that of its newest checkpoint, or 0."""
    checkpoints = list_checkpoints(out / "checkpoints")
    return step_of(checkpoints[-1]) if checkpoints else 0


def last_step(config: RunConfig, text: TextSize) -> int:
    """The step with which a run ends by its number of steps, epochs or tokens."""
    train = config.train
    last = num_steps(train, text.positions)
    return last if train.max_tokens is None else min(last, math.ceil(train.max_tokens / (train.rows * train.steps)))


def estimate_durations(
    config: RunConfig,
    text: TextSize,
    device: str,
    num_steps_left: int,
    *,
    presets_above: float | None,
    clock: Clock = time.perf_counter,
) -> dict[str, Duration]:
    """The duration of the run by its name (see `run_name`), and those of the other presets by rising size.

    The presets are left out if the run takes less than `presets_above` seconds, and always for None.
    The model of the run is measured, and a preset if its steps are short. The others are estimated from the measured
    model of the nearest size, by the ratio of floating-point operations. A model that does not fit into memory is not
    measured.
    """
    config = replace(config, train=replace(config.train, precision=resolve_precision(config.train, device)))
    own_name = run_name(config)
    configs = {**_preset_configs(config), own_name: config}
    models = {name: model_config_for_vocab(run, text.vocab_size) for name, run in configs.items()}
    flops = {name: training_flops(configs[name], model) for name, model in models.items()}
    by_size = sorted(models, key=lambda name: flops[name])
    measured: dict[str, float] = {}

    def measure(name: str, time_limit: float) -> float:
        run, model = configs[name], models[name]
        return measure_step(run, model, device, num_steps=num_steps_left, time_limit=time_limit, clock=clock)

    def scale(name: str) -> float:
        nearest = min(measured, key=lambda other: abs(math.log(flops[other] / flops[name])))
        return measured[nearest] * flops[name] / flops[nearest]

    def duration(name: str) -> Duration:
        return run_duration(config, models[name], text, num_steps_left, measured.get(name) or scale(name))

    fits = training_memory(config, models[own_name]) <= free_memory(device)
    first = own_name if fits else by_size[0]
    measured[first] = measure(first, TIME_LIMIT)
    if presets_above is None or duration(own_name).seconds < presets_above:
        return {own_name: duration(own_name)}
    for name in () if device.startswith("cuda") else by_size:  # on CUDA, kernels of each size are compiled at first
        if name not in measured and scale(name) <= PRESET_TIME_LIMIT:
            measured[name] = measure(name, PRESET_TIME_LIMIT)
    return {name: duration(name) for name in by_size}


def say_duration(
    config: RunConfig, text: TextSize, device: str, out: Path, say: Callable[[str], None], *, is_finetuning: bool
) -> None:
    """Passes an estimate of the duration of the run to `say`; for a new run of over an hour, also those of the presets.

    With several processes nothing is measured, because their steps wait for each other.
    """
    first = first_step(out)
    num_steps_left = last_step(config, text) - first
    if num_steps_left <= 0 or distributed.world_size() > 1:
        return
    own_name, is_resumed = run_name(config), first > 0
    presets_above = None if is_resumed or is_finetuning else HOUR
    durations = estimate_durations(config, text, device, num_steps_left, presets_above=presets_above)
    say(f"estimate: {describe_duration(config, durations[own_name], is_resumed=is_resumed)}")
    if len(durations) > 1:
        say(f"presets: {describe_presets(durations, own_name)}")


def run_duration(
    config: RunConfig, model: BiLMConfig, text: TextSize, num_steps_left: int, step_seconds: float
) -> Duration:
    """The duration of a run from the seconds of its steps.

    Held-out text is read twice, with reset and with carried state, in the forward pass with the full softmax.
    """
    train = config.train
    tokens_per_second = train.rows * train.steps / step_seconds
    cost = flops_per_token(model, text.vocab_size, DISTINCT_WORDS) / 3 / training_flops(config, model)
    validation, report = (
        2 * min(text.heldout_positions, limit or text.heldout_positions) * cost / tokens_per_second
        for limit in (train.validate_words, train.report_words)
    )
    interval = train.validate_every * step_seconds if train.validate_every else math.inf
    if train.validate_minutes is not None:
        interval = min(interval, max(60 * train.validate_minutes, validation * (1 / MAX_SHARE - 1)))
    num_validations = 1 + int(num_steps_left * step_seconds / interval)
    return Duration(num_steps_left, step_seconds, num_validations * validation + report)


def run_name(config: RunConfig) -> str:
    """The preset whose LSTM the model of a run has, or `THIS_RUN` if there is none."""
    matching = [name for name, preset in PRESETS.items() if preset.lstm == config.model.lstm]
    return matching[0] if matching else THIS_RUN


def describe_duration(config: RunConfig, duration: Duration, *, is_resumed: bool) -> str:
    """The speed and the time of a run in words."""
    train = config.train
    speed = float(f"{train.rows * train.steps / duration.step_seconds:.2g}")
    what = f"the remaining {duration.num_steps:,} steps" if is_resumed else "the run"
    line = f"about {speed:,.0f} tokens/s, about {approximate_duration(duration.seconds)} for {what}"
    if duration.heldout_seconds > 0.05 * duration.seconds:
        line += f", {approximate_duration(duration.heldout_seconds)} of it for held-out perplexity"
    if train.stop_after is not None and train.stop_after < duration.seconds:
        line += f"; this call stops after {approximate_duration(train.stop_after)} (--stop-after)"
    return line


def describe_presets(durations: dict[str, Duration], own_name: str) -> str:
    """The time of each preset, and the largest one that ends within an hour and within a night."""
    seconds = {name: duration.seconds for name, duration in durations.items()}
    times = ", ".join(
        f"{name} about {approximate_duration(value)}{' (this run)' if name == own_name != THIS_RUN else ''}"
        for name, value in seconds.items()
    )
    parts = []
    for label, limit in (("within an hour", HOUR), ("within a night", NIGHT)):
        ending = [name for name, value in seconds.items() if value <= limit and name != THIS_RUN]
        parts.append(f"{label}: {ending[-1] if ending else 'none'}")
    hint = "" if ending else "; fewer --epochs take less time"
    return f"{times}; {', '.join(parts)}{hint}"


def _preset_configs(config: RunConfig) -> dict[str, RunConfig]:
    """The run with the model of each preset, and with the kind of input that the run has."""
    configs = {}
    for name, preset in PRESETS.items():
        model = replace(preset, bidirectional=config.model.bidirectional)
        if config.model.chars is None:
            model = replace(model, chars=None, words=WordConfig(num_words=1, word_dim=model.lstm.proj_dim))
        elif model.chars is not None:
            widest = max(width for width, _ in model.chars.filters)
            max_chars = max(widest, config.model.chars.max_chars)
            model = replace(model, chars=replace(model.chars, max_chars=max_chars))
        configs[name] = replace(config, preset=name, model=model)
    return configs
