"""The training loop: steps, metrics, validation, checkpoints and stop conditions, resumed after an interruption.

A run has one folder:

    run/
      config.toml       effective settings
      metrics.jsonl     one line per step, per validation and per rollback
      checkpoints/      the newest checkpoints, to resume from
      best/             weights of the best validation so far, named by step
      bad_steps/        batches whose gradients were not finite
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from elmo.errors import ElmoError
from elmo.files import explain_write
from elmo.model.bilm import BiLM
from elmo.pretrain.config import RunConfig, write_config
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.stream import ContinuousStream, LMBatch
from elmo.pretrain.train import checkpoint, distributed
from elmo.pretrain.train.best_weights import save_best
from elmo.pretrain.train.metrics_log import MetricsLog
from elmo.pretrain.train.perplexity import Evaluator, add_losses
from elmo.pretrain.train.prefetch import Prefetcher
from elmo.pretrain.train.run_state import RunState, is_due
from elmo.pretrain.train.step import StepMetrics, Trainer
from elmo.pretrain.train.step_inputs import StepInputs
from elmo.pretrain.train.throughput import ThroughputMeter
from elmo.pretrain.train.timer import Timer
from elmo.stop_signals import StopSignals

log = logging.getLogger(__name__)

_DUE = (frozenset[str](), frozenset({"validation"}), frozenset({"checkpoint"}), frozenset({"validation", "checkpoint"}))

Batches = Prefetcher[tuple[LMBatch, list[StepInputs]]]


@dataclass(frozen=True)
class TrainResult:
    """The last step of a call of `train`, why it stopped, and the best validation so far (None before the first)."""

    step: int
    reason: str  # finished, max tokens, early stop, time is up, signal
    best: dict[str, Any] | None
    signal: int | None = None
    num_new_steps: int = 0  # made by this call


def train(
    model: BiLM,
    rows: Tensor,
    data: PreparedData,
    config: RunConfig,
    folder: Path,
    *,
    identity: dict[str, Any],
    strict_resume: bool = False,
    print_status: Callable[[str], None] = log.info,
) -> TrainResult:
    """Trains `model` on `data` until a limit is reached, resuming from the newest undamaged checkpoint in `folder`.

    `rows` are the ids of each word type (see `input_rows`). `identity` holds the settings that must not change between
    calls: a checkpoint with other values is refused, and the error names the differences.
    """
    settings = config.train
    trainer = Trainer(model, rows, config)
    stream = ContinuousStream(
        data,
        settings.rows // distributed.world_size(),
        settings.steps,
        seed=settings.seed,
        shuffle=settings.shuffle,
        shuffle_window=settings.shuffle_window,
        reset=settings.reset,
        rank=distributed.rank(),
        world_size=distributed.world_size(),
    )
    print_status = distributed.first_process_only(print_status)
    state = RunState(trainer, stream, config, folder, identity)
    state.resume(strict_resume, print_status)
    is_first = distributed.rank() == 0
    if is_first:
        checkpoint.remove_unfinished(folder / "checkpoints")
        write_config(config, folder)
    meter = ThroughputMeter(config, trainer, state.step, stream.positions_per_epoch)
    metrics_file = (
        MetricsLog(folder / "metrics.jsonl", state.step, tensorboard=settings.tensorboard)
        if is_first
        else nullcontext()
    )
    with StopSignals() as signals, metrics_file as metrics_log:
        loop = _Loop(state, data, metrics_log, signals, meter, print_status)
        while True:
            with _prefetch(state) as batches:
                result = loop.run(batches)
            if result is not None:
                return result
            batches.require_ended()  # before the stream is restored
            meter.rewind(state.roll_back(metrics_log, print_status))


def _prefetch(state: RunState) -> Batches:
    """The batches from the stream's position on, with the inputs of the steps from the current step on."""
    steps = count(state.step)
    return Prefetcher(state.stream, lambda batch: (batch, state.trainer.make_inputs(batch, next(steps))))


class _Loop:
    """Trains step by step. `metrics_log` is None on all processes except rank 0."""

    def __init__(
        self,
        state: RunState,
        data: PreparedData,
        metrics_log: MetricsLog | None,
        signals: StopSignals,
        meter: ThroughputMeter,
        print_status: Callable[[str], None],
    ) -> None:
        self.state, self.data, self.metrics_log, self.signals = state, data, metrics_log, signals
        self.meter, self.print_status = meter, print_status
        self.first_step = state.step
        self.validation_timer = Timer(state.config.train.validate_minutes)
        self.checkpoint_timer = Timer(state.config.train.checkpoint_minutes)
        self.due_by_time: frozenset[str] = frozenset()  # validation, checkpoint
        self.evaluator = Evaluator(state.trainer.model, state.trainer.rows, precision=state.trainer.dtype)

    def run(self, batches: Batches) -> TrainResult | None:
        """Trains until a limit is reached. Returns None at a spike of the loss: the caller then rolls back."""
        state, settings = self.state, self.state.config.train
        reason = self._stop_reason()
        while reason is None:
            (batch, inputs), state.position = batches.next()
            metrics = state.trainer.update(inputs, state.step)
            state.step += 1
            self._check_gradient(metrics, batch)
            if self.metrics_log is not None:
                self.metrics_log.write(state.step, **vars(metrics))
            # all processes see the same losses, so all of them roll back or none
            if not metrics.skipped and state.spike_guard.observe((metrics.forward + metrics.backward) / 2):
                return None
            line = self.meter.progress_line(state.step, metrics)
            if line:
                self.print_status(line)
            reason = self._stop_reason()
            validates_at_end = reason is not None and reason != "signal"
            validates_by_step = validates_at_end or is_due(state.step, settings.validate_every)
            if self.data.heldout.num_sentences and (validates_by_step or "validation" in self.due_by_time):
                with self.meter.paused(), self.validation_timer.running():
                    self._validate(by_time=not validates_by_step)
                reason = reason or self._stop_reason()
            if reason is not None or is_due(state.step, settings.checkpoint_every) or "checkpoint" in self.due_by_time:
                with self.meter.paused(), self.checkpoint_timer.running():
                    state.save(self.metrics_log)
        if state.saved_step != state.step:
            state.save(self.metrics_log)
        num_new_steps = state.step - self.first_step
        if num_new_steps:
            self.print_status(self.meter.summary(state.step))
        return TrainResult(state.step, reason, state.best, self.signals.received, num_new_steps)

    def _stop_reason(self) -> str | None:
        """Why the run stops now, None if it continues; also finds what is due by time. Both agree on every process."""
        state, settings = self.state, self.state.config.train
        self.due_by_time = frozenset()
        num_tokens = state.step * settings.rows * settings.steps
        if state.step >= settings.max_steps:
            return "finished"
        if settings.max_tokens is not None and num_tokens >= settings.max_tokens:
            return "max tokens"
        if settings.patience is not None and state.since_best >= settings.patience:
            return "early stop"
        is_time_up = settings.stop_after is not None and self.meter.elapsed >= settings.stop_after
        local_reason = 2 if self.signals.received is not None else int(is_time_up)
        # The clocks of the processes differ: any of them may stop the run, and rank 0 alone says what is due by time.
        # One number tells both, because a run that stops validates and saves anyway.
        due = self._due_on_this_clock() if distributed.rank() == 0 else 0
        agreed = distributed.max_over_processes(local_reason * len(_DUE) + due, state.trainer.device)
        reason, due = divmod(agreed, len(_DUE))
        self.due_by_time = _DUE[due]
        return (None, "time is up", "signal")[reason]

    def _due_on_this_clock(self) -> int:
        """What is due by time on this process, as an index in `_DUE`."""
        return int(self.validation_timer.is_due()) + 2 * int(self.checkpoint_timer.is_due())

    def _check_gradient(self, metrics: StepMetrics, batch: LMBatch) -> None:
        """Counts consecutive steps with a non-finite gradient and saves their batches; raises after too many."""
        state = self.state
        state.bad_in_a_row = state.bad_in_a_row + 1 if metrics.skipped else 0
        if not metrics.skipped:
            return
        bad_steps = state.folder / "bad_steps"
        if distributed.rank() == 0:
            with explain_write(bad_steps):
                bad_steps.mkdir(parents=True, exist_ok=True)
                path = bad_steps / f"step-{state.step:08d}.npz"
                np.savez(path, forward=batch.forward.inputs, backward=batch.backward.inputs)
            log.warning("step %d: the gradient is not finite; the weights were not changed.", state.step)
        if state.bad_in_a_row >= state.config.train.max_bad_steps:
            raise ElmoError(
                f"{state.bad_in_a_row} steps in a row had gradients that are not finite (step {state.step:,}).",
                f"Lower the learning rate. The text of these steps is in {bad_steps}.",
            )

    def _validate(self, *, by_time: bool) -> None:
        """Measures held-out perplexity and saves the weights if it is the best so far.

        A validation `by_time` is only reported: it neither becomes the best nor counts for `patience`, so that the
        exported weights do not depend on the speed of the machine.
        """
        state, max_words = self.state, self.state.config.train.validate_words
        losses = self.evaluator.reset_by_language(self.data, max_words=max_words)
        reset = (
            add_losses(losses.values()).perplexity() if losses else self.evaluator.reset(self.data, max_words=max_words)
        )
        by_language = {name: loss.perplexity() for name, loss in losses.items()}
        carried = self.evaluator.carried(self.data, max_words=max_words)
        if by_time:
            mark = " (by time)"
        elif state.best is None or reset.mean < state.best["mean"]:
            mark = " (best)"
            state.best, state.since_best = {"step": state.step, **reset.to_dict()}, 0
            if distributed.rank() == 0:
                save_best(state.folder, state.trainer.model, state.step)
        else:
            mark = ""
            state.since_best += 1
        if self.metrics_log is not None:
            validation: dict[str, Any] = {"reset": reset.to_dict(), "carried": carried.to_dict()}
            if by_language:
                validation["by_language"] = {name: perplexity.mean for name, perplexity in by_language.items()}
            self.metrics_log.write(state.step, validation=validation, **({"by_time": True} if by_time else {}))
        distributed.barrier()
        backward = "" if reset.backward is None else f", backward {reset.backward:,.2f}"
        self.print_status(
            f"step {state.step:,}: held-out perplexity, reset {reset.mean:,.2f} (forward {reset.forward:,.2f}"
            f"{backward}), carried {carried.mean:,.2f}{mark}"
        )
        if by_language:
            values = ", ".join(f"{name} {perplexity.mean:,.1f}" for name, perplexity in by_language.items())
            self.print_status(f"step {state.step:,}: held-out perplexity by language, reset: {values}")
