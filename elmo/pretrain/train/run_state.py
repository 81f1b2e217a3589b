"""The state of a training run: saved in checkpoints, restored on resume, and rolled back after a spike of the loss."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from torch import Tensor

from elmo.errors import DataError, ElmoError
from elmo.model.lstm import State
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.stream import ContinuousStream
from elmo.pretrain.train import checkpoint, distributed
from elmo.pretrain.train.best_weights import prune_best, stored_weights
from elmo.pretrain.train.metrics_log import MetricsLog
from elmo.pretrain.train.optim import learning_rate, load_optimizer
from elmo.pretrain.train.spike_guard import SpikeGuard
from elmo.pretrain.train.step import Trainer
from elmo.settings import changed_settings, describe_changes

log = logging.getLogger(__name__)


class RunState:
    """Everything that changes during a run: counters, best validation, position in the text, trainer and spike guard.

    `identity` holds the settings that must not change when a run is resumed. Arguments named `metrics_log` are None on
    every process except rank 0, which alone writes files.
    """

    def __init__(
        self, trainer: Trainer, stream: ContinuousStream, config: RunConfig, folder: Path, identity: dict[str, Any]
    ) -> None:
        self.trainer, self.stream, self.config, self.folder = trainer, stream, config, folder
        self.identity = identity
        self.step = 0  # completed steps
        self.best: dict[str, Any] | None = None  # the best validation, with its step
        self.since_best = 0  # validations
        self.bad_in_a_row = 0  # steps with a non-finite gradient
        self.position = stream.state()  # after the last batch that was used; the prefetcher has read further
        self.saved_step = -1  # of the last checkpoint
        self.spike_guard = SpikeGuard(config.train.spike_threshold)
        self._initial: tuple[dict[str, Tensor], dict[str, Any]] | None = None  # for a rollback without a checkpoint
        if config.train.spike_threshold is not None:
            zero = trainer.model.zero_state(config.train.rows)
            weights = {name: tensor.cpu().clone() for name, tensor in stored_weights(trainer.model).items()}
            self._initial = weights, deepcopy(self._training_state(zero))

    def resume(self, strict: bool, print_status: Callable[[str], None]) -> None:
        """Restores the newest undamaged checkpoint, if there is one; `strict` refuses to skip a damaged one."""
        newest = checkpoint.newest_sound(self.folder / "checkpoints", strict=strict)
        if newest is None:
            return
        path, weights, training, manifest = newest
        if changes := describe_changes(changed_settings(manifest["identity"], self.identity)):
            raise DataError(
                f"{path} belongs to another run ({changes}).",
                "Choose another --out, or use the settings with which the run was started.",
            )
        self._restore(weights, training)
        self.saved_step = self.step
        self.spike_guard.restore(training.get("spike_guard", {"settled": self.step}))
        self.trainer.lr_factor = self.spike_guard.lr_factor
        settings = _shared_settings(self.config, manifest["settings"])
        changes = describe_changes(changed_settings(manifest["settings"], settings))
        print_status(f"continuing from step {self.step:,} ({path.name})" + (f"; changed: {changes}" if changes else ""))
        if line := _describe_rate_change(manifest["settings"], self.config, self.step):
            print_status(line)

    def save(self, metrics_log: MetricsLog | None) -> None:
        """Writes a checkpoint of the current step and deletes the checkpoints that are no longer needed."""
        lstm_state, settings = distributed.gather_rows(self.trainer.state), self.config.train
        # the last checkpoint of a call may be at any step; it must not influence a later rollback
        if is_due(self.step, settings.checkpoint_every):
            self.spike_guard.record_checkpoint(self.step)
        if metrics_log is not None:
            metrics_log.flush()
            training = self._training_state(lstm_state)
            about = {"identity": self.identity, "settings": _changeable_settings(self.config)}
            checkpoints = self.folder / "checkpoints"
            checkpoint.save_checkpoint(checkpoints, self.step, stored_weights(self.trainer.model), training, about)
            rollback_steps = {self.spike_guard.recent, self.spike_guard.settled} - {0}
            checkpoint.prune_checkpoints(checkpoints, settings.keep, self.step, rollback_steps)
            prune_best(self.folder, self.best)
        distributed.barrier()
        self.saved_step = self.step

    def roll_back(self, metrics_log: MetricsLog | None, print_status: Callable[[str], None]) -> int:
        """Restores a checkpoint from before a spike of the loss and halves the learning rate for the rest of the run.

        Returns the number of steps that were undone. Raises ElmoError after too many rollbacks.
        """
        guard, spike_step, best = self.spike_guard, self.step, self.best
        rise = f"the smoothed loss rose from {guard.level:.2f} to {guard.fast:.2f} (step {spike_step:,})"
        if guard.num_rollbacks >= self.config.train.max_rollbacks:
            raise ElmoError(
                f"After {guard.num_rollbacks} rollbacks to a checkpoint, {rise}.",
                "Start a new run with a lower learning rate, or set train.spike_threshold=off to continue regardless.",
            )
        record = {"number": guard.num_rollbacks + 1, "from_step": spike_step, "loss": guard.fast, "level": guard.level}
        weights, training = self._load_for_rollback(guard.rollback_step(spike_step))
        self._restore(weights, training)
        self.best = best  # its weights are still the best so far
        guard.roll_back_to(self.step, training.get("spike_guard", SpikeGuard(None).state()))
        self.trainer.lr_factor = guard.lr_factor
        distributed.barrier()  # every process has read the checkpoint, which is now overwritten with the new lr_factor
        if metrics_log is not None:
            metrics_log.rewind(self.step, guard.num_rollbacks - 1)
            metrics_log.write(self.step, rollback={**record, "lr_factor": guard.lr_factor})
        print_status(f"{rise}: back to step {self.step:,}, learning rate x {guard.lr_factor:g} from there on")
        self.save(metrics_log)
        return spike_step - self.step

    def _load_for_rollback(self, step: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and training state of the checkpoint of `step`; of the start of the run for step 0."""
        if step:
            try:
                return checkpoint.load_checkpoint(self.folder / "checkpoints" / f"step-{step:08d}")[:2]
            except DataError as error:
                log.warning("%s Rolling back to the start of the run instead.", error.message)
        assert self._initial is not None
        return deepcopy(self._initial)

    def _restore(self, weights: dict[str, Tensor], training: dict[str, Any]) -> None:
        self.trainer.model.load_state_dict(weights, strict=False)
        load_optimizer(self.trainer.optimizer, training["optimizer"])
        lstm_state = State(training["h"].to(self.trainer.dtype), training["c"])
        self.trainer.state = distributed.local_rows(lstm_state, self.trainer.device)
        self.stream.restore(training["position"])
        self.position = self.stream.state()
        self.step, self.best, self.since_best = training["step"], training["best"], training["since_best"]
        self.bad_in_a_row = training["bad_in_a_row"]

    def _training_state(self, lstm_state: State) -> dict[str, Any]:
        """The content of a checkpoint besides the weights; `lstm_state` has the rows of all processes."""
        return {
            "step": self.step,
            "optimizer": self.trainer.optimizer.state_dict(),
            "h": lstm_state.h.cpu(),
            "c": lstm_state.c.cpu(),
            "position": self.position,
            "best": self.best,
            "since_best": self.since_best,
            "bad_in_a_row": self.bad_in_a_row,
            "spike_guard": self.spike_guard.state(),
        }


def is_due(step: int, interval: int) -> bool:
    """Whether something that happens every `interval` steps happens after this step; an interval of 0 means never."""
    return bool(interval) and step % interval == 0


def _describe_rate_change(before: dict[str, Any], config: RunConfig, step: int) -> str:
    """How another length of the run changes the learning rate of the next step; empty if it does not."""
    max_steps = before.get("train", {}).get("max_steps")
    if max_steps is None or max_steps == config.train.max_steps:
        return ""
    rates = [learning_rate(config.optim, step, number) for number in (max_steps, config.train.max_steps)]
    if math.isclose(*rates, rel_tol=0.01):
        return ""
    return (
        f"the learning rate follows the schedule of a run of {config.train.max_steps:,} steps, not of {max_steps:,}: "
        f"at this step it changes from {rates[0]:.2e} to {rates[1]:.2e} (optim.decay={config.optim.decay})"
    )


def _shared_settings(config: RunConfig, before: dict[str, Any]) -> dict[str, Any]:
    """The changeable settings that `before` also has; a checkpoint of an earlier version does not have all."""
    tables = _changeable_settings(config)
    return {
        name: {key: value for key, value in table.items() if key in before.get(name, {})}
        for name, table in tables.items()
    }


def _changeable_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that may change when a run is resumed; changes are printed."""
    return {"optim": vars(config.optim), "train": vars(config.train)}
