"""Throughput, share of the device's peak performance and remaining time of a run.

The throughput is that of training alone. The remaining time counts everything, at the pace of the run so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elmo.model.config import BiLMConfig
from elmo.pretrain.config import RunConfig
from elmo.pretrain.train.step import StepMetrics, Trainer
from elmo.progress import format_duration

# dense bfloat16 peak from the data sheets, FLOP/s
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "V100": 125e12, "RTX 4090": 165e12}
SECONDS_BETWEEN_LINES = 5.0
MEAN_WINDOWS = 14  # assumed number of convolution windows per word


def flops_per_token(config: BiLMConfig, num_samples: int, distinct: float = 0.5) -> float:
    """Floating-point operations per training token, all directions: forward, and twice as many backward.

    `distinct`: number of distinct words / number of tokens, because each distinct word is encoded once per step.
    """
    P, H = config.lstm.proj_dim, config.lstm.cell_dim
    lstm = (
        config.num_directions
        * config.lstm.num_layers
        * (2 * 2 * P * 4 * H + (2 * H * P if config.lstm.projects else 0))
    )
    softmax = config.num_directions * 2 * P * num_samples
    token = 2 * config.token_dim * P if config.projects_tokens else 0
    if config.chars:
        conv = sum(2 * width * config.chars.char_dim * count * MEAN_WINDOWS for width, count in config.chars.filters)
        token += conv + config.chars.num_highways * 4 * config.chars.num_filters**2
    return 3.0 * (lstm + softmax + distinct * token)


class ThroughputMeter:
    """Measures the speed of a run with a monotonic clock."""

    def __init__(self, config: RunConfig, trainer: Trainer, first_step: int, positions_per_epoch: int) -> None:
        self._config, self._device, self._first_step = config, trainer.device, first_step
        head = trainer.model.config.head
        assert head is not None
        self._flops_per_token = flops_per_token(config.model, config.objective.num_scored(head))
        self._positions_per_epoch = positions_per_epoch
        self._start = self._last_time = time.monotonic()
        self._last_step = first_step
        self._paused_seconds = 0.0
        self._after_first: tuple[float, int] | None = None  # time and number of the first step of this call
        self._has_backward = config.model.num_directions > 1

    @property
    def elapsed(self) -> float:
        """Seconds since the start, including pauses."""
        return time.monotonic() - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time inside this context does not count as training time."""
        before = time.monotonic()
        yield
        seconds = time.monotonic() - before
        self._paused_seconds += seconds
        self._last_time += seconds

    def rewind(self, num_steps: int) -> None:
        """Lowers the step counters after a rollback by `num_steps`; the undone steps still count as training."""
        self._first_step -= num_steps
        self._last_step -= num_steps
        if self._after_first is not None:
            self._after_first = self._after_first[0], self._after_first[1] - num_steps

    def progress_line(self, step: int, metrics: StepMetrics) -> str | None:
        """A line with step, epoch, losses, learning rate, gradient norm, tokens/s, share of peak and remaining time.

        None if the previous line is less than five seconds old, except for the last step.
        """
        now, settings = time.monotonic(), self._config.train
        if self._after_first is None:
            self._after_first = now, step
        if now - self._last_time < SECONDS_BETWEEN_LINES and step < settings.max_steps:
            return None
        steps_per_second = (step - self._last_step) / max(now - self._last_time, 1e-9)
        self._last_time, self._last_step = now, step
        tokens_per_second = steps_per_second * settings.rows * settings.steps
        left = self._time_left(step, now)
        share = self._share_of_peak(tokens_per_second)
        epoch = step * settings.rows * settings.steps / self._positions_per_epoch
        return (
            f"step {step:,}/{settings.max_steps:,} epoch {epoch:.2f} {self._losses(metrics)} "
            f"lr {metrics.lr:.2e} norm {metrics.grad_norm:.2f} {tokens_per_second:,.0f} tokens/s{share}{left}"
        )

    def tokens_per_second(self, step: int) -> float:
        """Tokens per direction and second of training time since the start."""
        seconds = max(self.elapsed - self._paused_seconds, 1e-9)
        return self._num_tokens(step) / seconds

    def summary(self, step: int) -> str:
        """One line for the end of the run: number of tokens, duration and speed."""
        speed = f"{self.tokens_per_second(step):,.0f} tokens/s while training"
        return f"{self._num_tokens(step):,} tokens in {format_duration(self.elapsed)}, {speed}"

    def _losses(self, metrics: StepMetrics) -> str:
        backward = f" bwd {metrics.backward:.3f}" if self._has_backward else ""
        return f"loss fwd {metrics.forward:.3f}{backward}"

    def _time_left(self, step: int, now: float) -> str:
        """The remaining time at the pace since the first step, which includes set-up, or until a limit of the run."""
        assert self._after_first is not None
        settings, (first_time, first_step) = self._config.train, self._after_first
        limits = []
        if step > first_step:
            last_step = settings.max_steps
            if settings.max_tokens is not None:
                last_step = min(last_step, math.ceil(settings.max_tokens / (settings.rows * settings.steps)))
            limits.append(max(0, last_step - step) * (now - first_time) / (step - first_step))
        if settings.stop_after is not None:
            limits.append(max(0.0, settings.stop_after - self.elapsed))
        return f" {format_duration(min(limits))} left" if limits else ""

    def _num_tokens(self, step: int) -> int:
        return (step - self._first_step) * self._config.train.rows * self._config.train.steps

    def _share_of_peak(self, tokens_per_second: float) -> str:
        if self._device.type != "cuda":
            return ""
        name = torch.cuda.get_device_name(self._device)
        peak = next((value for key, value in PEAKS.items() if key in name), None)
        return f" ({tokens_per_second * self._flops_per_token / peak:.0%} of bf16 peak)" if peak else ""
