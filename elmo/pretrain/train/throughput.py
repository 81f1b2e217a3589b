"""Throughput, share of the device's peak, and time left, from a monotonic clock that stands still during validation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elmo.model.config import BiLMConfig
from elmo.pretrain.config import RunConfig
from elmo.pretrain.train.step import StepMetrics, Stepper

# dense bf16 peak of the data sheets, FLOP/s
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "V100": 125e12, "RTX 4090": 165e12}
EVERY = 5.0  # seconds between lines


def flops_per_token(config: BiLMConfig, num_samples: int, distinct: float = 0.5) -> float:
    """Multiplications and additions x 2 of one training token: forward and twice that backward, both directions.

    `distinct`: share of the tokens that the token layer sees, since each distinct word is encoded once a step.
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
        conv = sum(2 * width * config.chars.char_dim * count * 14 for width, count in config.chars.filters)
        token += conv + config.chars.num_highways * 4 * config.chars.num_filters**2
    return 3.0 * (lstm + softmax + distinct * token)


class Meter:
    """Measures a run; `line` gives a line of progress every few seconds and nothing between."""

    def __init__(self, config: RunConfig, stepper: Stepper, first_step: int, positions_per_epoch: int) -> None:
        self._config, self._device, self._first = config, stepper.device, first_step
        self._flops = flops_per_token(config.model, stepper.num_scored)
        self._epoch = positions_per_epoch
        self._start = self._last = time.monotonic()
        self._last_step = first_step
        self._paused = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start, validation included."""
        return time.monotonic() - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here does not count as training."""
        before = time.monotonic()
        yield
        spent = time.monotonic() - before
        self._paused += spent
        self._last += spent

    def rewind(self, num_steps: int) -> None:
        """The run went back so many steps; they still count as training."""
        self._first -= num_steps
        self._last_step -= num_steps

    def line(self, step: int, metrics: StepMetrics) -> str | None:
        """Step, epoch, losses, rate, gradient norm, tokens/s, share of peak, time left; None when said just before."""
        now, settings = time.monotonic(), self._config.train
        if now - self._last < EVERY and step < settings.max_steps:
            return None
        rate = (step - self._last_step) / max(now - self._last, 1e-9)  # steps a second
        self._last, self._last_step = now, step
        tokens = rate * settings.rows * settings.steps
        left = (settings.max_steps - step) / max(rate, 1e-9)
        if settings.stop_after is not None:
            left = min(left, max(0.0, settings.stop_after - self.elapsed))
        share = self._share_of_peak(tokens)
        epoch = step * settings.rows * settings.steps / self._epoch
        return (
            f"step {step:,}/{settings.max_steps:,} epoch {epoch:.2f} loss {metrics.forward:.3f} {metrics.backward:.3f} "
            f"lr {metrics.lr:.2e} norm {metrics.grad_norm:.2f} {tokens:,.0f} tokens/s{share} {clock(left)} left"
        )

    def tokens_per_second(self, step: int) -> float:
        """Tokens a direction and second of training, since the start."""
        seconds = max(self.elapsed - self._paused, 1e-9)
        return (step - self._first) * self._config.train.rows * self._config.train.steps / seconds

    def summary(self, step: int) -> str:
        """One line for the end."""
        tokens = (step - self._first) * self._config.train.rows * self._config.train.steps
        return (
            f"{tokens:,} tokens in {clock(self.elapsed)}, {self.tokens_per_second(step):,.0f} tokens/s while training"
        )

    def _share_of_peak(self, tokens: float) -> str:
        if self._device.type != "cuda":
            return ""
        name = torch.cuda.get_device_name(self._device)
        peak = next((value for key, value in PEAKS.items() if key in name), None)
        return f" ({tokens * self._flops / peak:.0%} of bf16 peak)" if peak else ""


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
