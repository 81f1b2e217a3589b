"""Measures the seconds of a training step of a configuration: real steps of a `Trainer` on artificial text.

The measurement leaves no trace: it has its own model, restores the random state, and frees its memory. A step that does
not fit into the time limit is extrapolated from shorter batches: with fewer time steps the same products are made, only
fewer times, so the time is a constant (optimizer, sampled rows) plus a time per position.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.artificial_text import make_batches, word_rows, zipf_ids
from elmo.pretrain.train.step import Trainer
from elmo.pretrain.train.throughput import flops_per_token

TIME_LIMIT = 2.0  # seconds of a measurement after its first step, about
MAX_SHARE = 0.05  # of the time of the run, so that short runs do not wait for their estimate
MAX_CPU_FLOPS = 25e9  # of the first batch on a CPU; larger models are measured with fewer rows
MIN_SLOPE = 0.25  # of the time per token of a measured batch; the rest does not depend on the number of tokens
DISTINCT_WORDS = 0.95  # distinct words / tokens of both directions at 128 x 20 tokens, in German novels

Clock = Callable[[], float]


def measure_step(
    config: RunConfig,
    model_config: BiLMConfig,
    device: str,
    *,
    num_steps: int,
    time_limit: float = TIME_LIMIT,
    clock: Clock = time.perf_counter,
) -> float:
    """The seconds of one step of a run of `num_steps` steps, about.

    `config` has a definite precision, and `model_config` a softmax. The measurement takes about `time_limit` seconds of
    `clock`, less for a short run, besides the time to make the model and to load the kernels.
    """
    cuda_devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() or "cuda" in device else []
    with torch.random.fork_rng(devices=cuda_devices):
        try:
            return _Stopwatch(config, model_config, device, num_steps, time_limit, clock).step_seconds()
        finally:
            gc.collect()  # recorded CUDA graphs refer to their trainer and it to them
            if cuda_devices:
                torch.cuda.empty_cache()


class _Stopwatch:
    """Times steps of batches of different sizes with one model."""

    def __init__(
        self,
        config: RunConfig,
        model_config: BiLMConfig,
        device: str,
        num_steps: int,
        time_limit: float,
        clock: Clock,
    ) -> None:
        assert model_config.head is not None
        settings = replace(config.train, max_steps=max(num_steps, 1), head_only_steps=0)
        self.config = replace(config, train=settings)
        self.num_steps, self.time_limit, self.clock = num_steps, time_limit, clock
        self.is_cuda, vocab_size = device.startswith("cuda"), model_config.head.vocab_size
        self.flops_per_token = training_flops(config, model_config)
        self.model = BiLM(model_config).to(device)
        self.table = _input_table(model_config, vocab_size).to(device)
        self.ids = zipf_ids(vocab_size, 4 * settings.rows * settings.steps)
        self.start: float | None = None  # after the first step, which loads the kernels

    def step_seconds(self) -> float:
        """The seconds of a step: the median of full steps, or an extrapolation where they would take too long."""
        train = self.config.train
        full_size = train.rows * train.steps
        if self.is_cuda:  # a step takes milliseconds, and the shape of a batch decides which kernels are fast
            return self._median(train.rows, train.steps, train.accumulate, self.num_steps)
        num_rows = train.rows // train.accumulate
        while num_rows > 1 and num_rows * self.flops_per_token > MAX_CPU_FLOPS:
            num_rows //= 2
        lengths = [length for length in (1, 2) if length <= train.steps]
        times = {num_rows * length: self._median(num_rows, length, 1, 3, 0.1) for length in lengths}  # by tokens
        full_seconds = _extrapolate(times, full_size)
        budget = min(self.time_limit, MAX_SHARE * self.num_steps * full_seconds)
        left = budget - self._elapsed()
        if full_seconds <= budget:  # one step at least, even if the short batches have used most of the time
            return self._median(train.rows, train.steps, train.accumulate, self.num_steps, left)
        length = lengths[-1]
        while 2 * length < train.steps and 2 * _extrapolate(times, 2 * num_rows * length) <= left:
            length *= 2
        if length > lengths[-1]:
            times = {num_rows: times[num_rows], num_rows * length: self._median(num_rows, length, 1, 3, left)}
        return _extrapolate(times, full_size)

    def _median(
        self,
        num_rows: int,
        num_positions: int,
        accumulate: int,
        max_count: int,
        seconds: float | None = None,
    ) -> float:
        """The median seconds of up to `max_count` steps of a batch, at least one, within `seconds` if possible.

        A step before them is not counted, because it allocates memory and takes several times as long.
        """
        train = replace(self.config.train, rows=num_rows, steps=num_positions, accumulate=accumulate)
        trainer = Trainer(self.model, self.table, replace(self.config, train=train))
        (batch,) = make_batches(self.ids, num_rows, num_positions, 1, reset=train.reset)
        inputs = trainer.make_inputs(batch, 0)
        start = self.clock()
        trainer.update(inputs, 0)
        if self.start is None:
            self.start = start = self.clock()
        end = start + (self.time_limit if seconds is None else seconds)
        times: list[float] = []
        while not times or (len(times) < max_count and times[-1] + self.clock() <= end):
            before = self.clock()
            trainer.update(inputs, 1 + len(times))
            times.append(self.clock() - before)
        return statistics.median(times)

    def _elapsed(self) -> float:
        return 0.0 if self.start is None else self.clock() - self.start


def training_flops(config: RunConfig, model_config: BiLMConfig) -> float:
    """The floating-point operations per token of a step, by which models of different sizes are compared."""
    assert model_config.head is not None
    num_scored = config.objective.num_scored(model_config.head)
    return flops_per_token(model_config, num_scored, DISTINCT_WORDS)


def _extrapolate(times: dict[int, float], size: int) -> float:
    """The seconds of a batch of `size` tokens, on the line through the smallest and the largest measured batch.

    Its slope is limited, because the difference of two times that another process disturbed may be anything.
    """
    small, large = min(times), max(times)
    mean = slope = times[large] / large
    if large > small:
        slope = (times[large] - times[small]) / (large - small)
    per_token = min(mean, max(MIN_SLOPE * mean, slope))
    return times[large] + per_token * (size - large)


def _input_table(config: BiLMConfig, vocab_size: int) -> Tensor:
    """The model's input for each artificial word: its character ids (V, C), or its word id (V, 1)."""
    if config.chars is None:
        return torch.arange(1, vocab_size + 1, dtype=torch.int32)[:, None]
    return torch.from_numpy(word_rows(vocab_size, config.chars.max_chars).astype(np.int16))
