"""The training loop: step, log, validate, keep, stop; continue where an earlier call was cut off.

Everything a run knows is in its folder:

    run/
      config.toml       effective settings
      metrics.jsonl     one line a step, one a validation, one a return to a checkpoint
      checkpoints/      the newest few, to continue from
      best/             weights of the best validation so far, by step
      bad_steps/        batches whose gradients were not finite

This is one thing in one file, although it is long: a step, a checkpoint, a resume and a rollback touch the same state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from elmo.errors import DataError, ElmoError
from elmo.files import atomic_file, explain_write
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.pretrain.config import RunConfig, to_toml
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.data.stream import ContinuousStream, LMBatch
from elmo.pretrain.train import checkpoint, distributed
from elmo.pretrain.train.best_weights import prune_best, save_best, stored_weights
from elmo.pretrain.train.feed import Feed
from elmo.pretrain.train.metrics_log import RunLog
from elmo.pretrain.train.optim import load_optimizer
from elmo.pretrain.train.perplexity import Evaluator
from elmo.pretrain.train.prefetch import Prefetcher
from elmo.pretrain.train.spike_guard import SpikeGuard
from elmo.pretrain.train.step import StepMetrics, Stepper
from elmo.pretrain.train.throughput import Meter
from elmo.settings import changed_settings
from elmo.stop_signals import StopSignals

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """How a call of `train` ended: where, why, and the best validation so far (None before the first)."""

    step: int
    reason: str  # finished, max tokens, early stop, time is up, signal
    best: dict[str, Any] | None
    signal: int | None = None


def train(
    model: BiLM,
    rows: Tensor,
    data: PreparedData,
    config: RunConfig,
    folder: Path,
    *,
    identity: dict[str, Any],
    strict_resume: bool = False,
    say: Callable[[str], None] = log.info,
) -> TrainResult:
    """Trains `model` on `data` until a limit is met, continuing from the run folder's newest sound checkpoint.

    `identity` is what must not change between calls; a checkpoint with another one is refused with the difference.
    """
    settings = config.train
    stepper = Stepper(model, rows, config)
    stream = ContinuousStream(
        data,
        settings.rows // distributed.world_size(),
        settings.steps,
        seed=settings.seed,
        shuffle=settings.shuffle,
        reset=settings.reset,
        rank=distributed.rank(),
        world_size=distributed.world_size(),
    )
    progress = _Run(stepper, stream, config, folder, identity)
    progress.resume(strict_resume, say)
    chief = distributed.rank() == 0
    say = say if chief else lambda _: None
    if chief:
        checkpoint.sweep_leftovers(folder / "checkpoints")
        with atomic_file(folder / "config.toml") as partial:
            partial.write_text(to_toml(config), encoding="utf-8")
    meter = Meter(config, stepper, progress.step, stream.positions_per_epoch)
    tensorboard = chief and settings.tensorboard
    metrics = RunLog(folder / "metrics.jsonl", progress.step, tensorboard=tensorboard) if chief else nullcontext()
    with StopSignals() as signals, metrics as records:
        while True:
            with _prefetch(stream, stepper, progress.step) as batches:
                result = progress.go(batches, records, signals, meter, say, data)
            if result is not None:
                return result
            meter.rewind(progress.roll_back(records, say))


def _prefetch(stream: ContinuousStream, stepper: Stepper, step: int) -> Prefetcher[tuple[LMBatch, list[Feed]]]:
    """Batches from the stream's place on, made ready for the steps from `step` on."""
    numbers = count(step)
    return Prefetcher(stream, lambda batch: (batch, stepper.feeds(batch, next(numbers))))


class _Run:
    """What changes while a run goes on."""

    def __init__(
        self, stepper: Stepper, stream: ContinuousStream, config: RunConfig, folder: Path, identity: dict[str, Any]
    ) -> None:
        self.stepper, self.stream, self.config, self.folder = stepper, stream, config, folder
        self.identity = identity
        self.step = 0
        self.best: dict[str, Any] | None = None
        self.since_best = 0
        self.bad_in_a_row = 0
        self.position = stream.state()
        self.saved_step = -1
        self.evaluator = Evaluator(stepper.model, stepper.rows, precision=stepper.dtype)
        self.spike_guard = SpikeGuard(config.train.spike_threshold)
        self.beginning: tuple[dict[str, Tensor], dict[str, Any]] | None = None  # to return to before any checkpoint
        if config.train.spike_threshold is not None:
            zero = stepper.model.zero_state(config.train.rows)
            weights = {name: tensor.cpu().clone() for name, tensor in stored_weights(stepper.model).items()}
            self.beginning = weights, deepcopy(self._training(zero))

    def go(
        self,
        batches: Prefetcher[tuple[LMBatch, list[Feed]]],
        records: RunLog | None,
        signals: StopSignals,
        meter: Meter,
        say: Callable[[str], None],
        data: PreparedData,
    ) -> TrainResult | None:
        """Trains until a limit is met, or until a spike of the loss: None, `roll_back` is next."""
        settings = self.config.train
        reason = self._reason(meter, signals)
        while reason is None:
            (batch, feeds), self.position = batches.next()
            metrics = self.stepper.update(feeds, self.step)
            self.step += 1
            self._guard(metrics, batch)
            if records is not None:
                records.write(self.step, **vars(metrics))
            # all processes see the same losses, so all return or none
            if not metrics.skipped and self.spike_guard.is_spike((metrics.forward + metrics.backward) / 2):
                return None
            line = meter.line(self.step, metrics)
            if line:
                say(line)
            reason = self._reason(meter, signals)
            ending = reason is not None
            if data.heldout.num_sentences and _due(self.step, settings.validate_every, ending and reason != "signal"):
                with meter.paused():
                    self._validate(data, records, say)
                reason = reason or self._reason(meter, signals)
            if _due(self.step, settings.checkpoint_every, reason is not None):
                with meter.paused():
                    self._save(records)
        if self.saved_step != self.step:
            self._save(records)
        say(meter.summary(self.step))
        return TrainResult(self.step, reason, self.best, signals.received)

    def resume(self, strict: bool, say: Callable[[str], None]) -> None:
        """Continues from the newest sound checkpoint, if there is one."""
        checkpoints = self.folder / "checkpoints"
        found = checkpoint.newest_sound(checkpoints, strict=strict)
        if found is None:
            return
        path, weights, training, manifest = found
        if changed := _describe_changes(manifest["identity"], self.identity):
            raise DataError(
                f"{path} belongs to another run ({changed}).",
                "Choose another --out, or give the settings it was started with.",
            )
        self._restore(weights, training)
        self.saved_step = self.step
        self.spike_guard.restore(training.get("spike_guard", {"settled": self.step}))
        self.stepper.lr_factor = self.spike_guard.lr_factor
        changed = _describe_changes(manifest["settings"], _settings(self.config))
        say(f"continuing from step {self.step:,} ({path.name})" + (f"; changed: {changed}" if changed else ""))

    def roll_back(self, records: RunLog | None, say: Callable[[str], None]) -> int:
        """Returns to before a spike of the loss, with half the learning rate from there on; gives the steps undone."""
        guard, spike_step, best = self.spike_guard, self.step, self.best
        rise = f"the smoothed loss rose from {guard.level:.2f} to {guard.fast:.2f} (step {spike_step:,})"
        if guard.num_rollbacks >= self.config.train.max_rollbacks:
            raise ElmoError(
                f"After {guard.num_rollbacks} returns to a checkpoint, {rise}.",
                "Start a new run with a lower learning rate, or set train.spike_threshold=off to let it go on.",
            )
        record = {"number": guard.num_rollbacks + 1, "from_step": spike_step, "loss": guard.fast, "level": guard.level}
        step = guard.return_step(spike_step)
        weights, training = self._before_spike(step)
        self._restore(weights, training)
        self.best = best  # its weights are still the best, wherever the run goes from here
        guard.return_to(self.step, training.get("spike_guard", SpikeGuard(None).state()))
        self.stepper.lr_factor = guard.lr_factor
        distributed.wait_for_all()  # nobody reads the checkpoint that is now written again, with the new rate
        if records is not None:
            records.rewind(self.step, guard.num_rollbacks - 1)
            records.write(self.step, rollback={**record, "lr_factor": guard.lr_factor})
        say(f"{rise}: back to step {self.step:,}, learning rate x {guard.lr_factor:g} from there on")
        self._save(records)
        return spike_step - self.step

    def _before_spike(self, step: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and training state of the checkpoint of a step, or of the beginning (step 0)."""
        if step:
            try:
                return checkpoint.load_checkpoint(self.folder / "checkpoints" / f"step-{step:08d}")[:2]
            except DataError as error:
                log.warning("%s Returning to the beginning of the run.", error.message)
        assert self.beginning is not None
        return deepcopy(self.beginning)

    def _restore(self, weights: dict[str, Tensor], training: dict[str, Any]) -> None:
        self.stepper.model.load_state_dict(weights, strict=False)
        load_optimizer(self.stepper.optimizer, training["optimizer"])
        state = State(training["h"].to(self.stepper.dtype), training["c"])
        self.stepper.state = distributed.my_rows(state, self.stepper.device)
        self.stream.restore(training["position"])
        self.position = self.stream.state()
        self.step, self.best, self.since_best = training["step"], training["best"], training["since_best"]
        self.bad_in_a_row = training["bad_in_a_row"]

    def _reason(self, meter: Meter, signals: StopSignals) -> str | None:
        """Why to stop now; the same on every process."""
        settings = self.config.train
        tokens = self.step * settings.rows * settings.steps
        if self.step >= settings.max_steps:
            return "finished"
        if settings.max_tokens is not None and tokens >= settings.max_tokens:
            return "max tokens"
        if settings.patience is not None and self.since_best >= settings.patience:
            return "early stop"
        late = settings.stop_after is not None and meter.elapsed >= settings.stop_after
        mine = 2 if signals.received is not None else int(late)
        return (None, "time is up", "signal")[distributed.highest(mine, self.stepper.device)]

    def _guard(self, metrics: StepMetrics, batch: LMBatch) -> None:
        """Counts steps whose gradient was not finite, keeps their text for a look, and gives up after too many."""
        self.bad_in_a_row = self.bad_in_a_row + 1 if metrics.skipped else 0
        if not metrics.skipped:
            return
        if distributed.rank() == 0:
            bad = self.folder / "bad_steps"
            with explain_write(bad):
                bad.mkdir(parents=True, exist_ok=True)
                np.savez(
                    bad / f"step-{self.step:08d}.npz", forward=batch.forward.inputs, backward=batch.backward.inputs
                )
            log.warning("step %d: the gradient is not finite; the weights were left as they are.", self.step)
        if self.bad_in_a_row >= self.config.train.max_bad_steps:
            raise ElmoError(
                f"{self.bad_in_a_row} steps in a row had gradients that are not finite (step {self.step:,}).",
                f"Lower the learning rate. The text of these steps is in {self.folder / 'bad_steps'}.",
            )

    def _validate(self, data: PreparedData, records: RunLog | None, say: Callable[[str], None]) -> None:
        words = self.config.train.validate_words
        reset, carried = self.evaluator.reset(data, max_words=words), self.evaluator.carried(data, max_words=words)
        if self.best is None or reset.mean < self.best["mean"]:
            self.best, self.since_best = {"step": self.step, **reset.to_dict()}, 0
            if distributed.rank() == 0:
                save_best(self.folder, self.stepper.model, self.step)
        else:
            self.since_best += 1
        if records is not None:
            records.write(self.step, validation={"reset": reset.to_dict(), "carried": carried.to_dict()})
        distributed.wait_for_all()
        mark = " (best)" if self.since_best == 0 else ""
        say(
            f"step {self.step:,}: held-out perplexity, reset {reset.mean:,.2f} (forward {reset.forward:,.2f}, backward "
            f"{reset.backward:,.2f}), carried {carried.mean:,.2f}{mark}"
        )

    def _save(self, records: RunLog | None) -> None:
        state, settings = distributed.all_rows(self.stepper.state), self.config.train
        if _due(self.step, settings.checkpoint_every, False):  # a call that ends elsewhere must not change a rollback
            self.spike_guard.checkpointed(self.step)
        if records is not None:
            records.flush()
            training = self._training(state)
            about = {"identity": self.identity, "settings": _settings(self.config)}
            checkpoints = self.folder / "checkpoints"
            checkpoint.save_checkpoint(checkpoints, self.step, stored_weights(self.stepper.model), training, about)
            also = {self.spike_guard.recent, self.spike_guard.settled} - {0}
            checkpoint.prune_checkpoints(checkpoints, settings.keep, self.step, also)
            prune_best(self.folder, self.best)
        distributed.wait_for_all()
        self.saved_step = self.step

    def _training(self, state: State) -> dict[str, Any]:
        """What a checkpoint holds besides the weights; `state` is of all processes' rows."""
        return {
            "step": self.step,
            "optimizer": self.stepper.optimizer.state_dict(),
            "h": state.h.cpu(),
            "c": state.c.cpu(),
            "position": self.position,
            "best": self.best,
            "since_best": self.since_best,
            "bad_in_a_row": self.bad_in_a_row,
            "spike_guard": self.spike_guard.state(),
        }


def _describe_changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The settings that differ, in words; empty where there are none."""
    changed = changed_settings(before, after)
    return ", ".join(f"{key} {str(old)[:80]} -> {str(new)[:80]}" for key, (old, new) in changed.items())


def _settings(config: RunConfig) -> dict[str, Any]:
    """What may change between calls, with a word about it."""
    return {"optim": vars(config.optim), "train": vars(config.train)}


def _due(step: int, every: int, ending: bool) -> bool:
    return ending or bool(every) and step % every == 0
