"""The training loop of all six tasks: updates, validations with early stopping, checkpoints, exact resumption.

The random numbers of an update depend only on the seed and the number of the update, and the batches of an epoch only
on the seed and the epoch, so that three numbers describe the position in a run. A run that is resumed from a checkpoint
has the same result on the CPU, bit for bit. A checkpoint is written at each validation, or less often if writing is
slow.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmo.errors import DataError
from elmo.progress import Progress
from elmo.stop_signals import StopSignals
from elmo.tasks.batches import plan_epoch
from elmo.tasks.checkpoint import load_checkpoint, save_checkpoint
from elmo.tasks.checks import check_config, check_same
from elmo.tasks.optim import WeightAverage, load_optimizer, make_optimizer, update
from elmo.tasks.predict import evaluate
from elmo.tasks.record import elmo_identity
from elmo.tasks.run import Run, Splits
from elmo.tasks.token_batch import to_device

MAX_BAD_UPDATES = 20  # consecutive updates with non-finite gradients, after which training is aborted
READ_LOSSES_EVERY = 50  # updates; until then losses stay on the device, because reading them synchronises
MAX_SAVING_SHARE = 0.05  # of the time that slow checkpoints may take
QUICK_SAVE = 0.25  # seconds; a checkpoint that takes less is written at every validation

Say = Callable[[str], None]  # prints one line of progress


@dataclass
class TrainingState:
    """The position in a run and its history: everything that the next update needs besides weights and optimizer."""

    epoch: int = 0
    position: int = 0  # number of finished batches of this epoch
    updates: int = 0
    losses: list[float] = field(default_factory=list)  # since the last validation
    curve: list[dict[str, Any]] = field(default_factory=list)  # one entry per validation
    best: dict[str, Any] | None = None  # epoch, update, score, dev
    without_better: int = 0  # consecutive validations without a better score
    seconds: float = 0.0  # of training


class TrainingLoop:
    """The weights, optimizer and state of one run, with updates, validations and checkpoints."""

    def __init__(self, run: Run, splits: Splits, out: Path, *, say: Say, show: bool | None) -> None:
        self.run, self.splits, self.out, self.say, self.show = run, splits, out, say, show
        self.model: Any = run.model
        self.optimizer = make_optimizer(run.model, run.config)
        self.average = WeightAverage(run.model, run.config.optim.ema)
        self.state = TrainingState()
        self.best_weights: dict[str, Tensor] = {}
        self._identity = {"config": run.config.to_dict(), "data": splits.about, "elmo": elmo_identity(run)}
        self._bad_updates = 0  # consecutive updates with non-finite gradients
        self._unread: list[Tensor] = []  # (2,) per update: its loss, and whether its gradient was finite
        self._saved_at, self._save_seconds = 0.0, 0.0  # time and duration of the last checkpoint
        self._is_saved = False  # whether the newest checkpoint has the present state
        self._resume()

    def run_to_end(self, signals: StopSignals) -> None:
        """Makes updates and validations until the last epoch, or until the dev score stops improving.

        A signal stops it after the current update; `save` then keeps the state. At the end, the newest checkpoint is
        that of the last update without a validation that only this number of epochs makes: a run with more epochs can
        continue from it as if it had been longer from the start.
        """
        train, state = self.run.config.train, self.state
        sizes = [self.run.task.size(example) for example in self.splits.train]
        start, seconds_before = time.monotonic(), state.seconds
        num_examples = len(self.splits.train)
        # of all epochs together, so that the time left is that of the run, with its validations
        with Progress("", train.epochs * num_examples, unit="examples", show=self.show) as progress:
            while state.epoch < train.epochs and not self._is_stopped() and signals.received is None:
                plan = plan_epoch(
                    sizes, train.batch_size, seed=train.seed, epoch=state.epoch, max_tokens=train.max_tokens
                )
                progress.label = f"epoch {state.epoch + 1} of {train.epochs}"
                progress.done = state.epoch * num_examples + sum(map(len, plan[: state.position]))
                for indices, batch in self._batches(plan[state.position :]):
                    self._update(batch)
                    state.seconds = seconds_before + time.monotonic() - start
                    progress.advance(len(indices))
                    at_end = state.position == len(plan)
                    if at_end:
                        state.epoch, state.position = state.epoch + 1, 0
                    if (at_end and self._is_validation_due()) or (
                        train.validate_every and not at_end and state.position % train.validate_every == 0
                    ):
                        progress.hide()
                        self._validate()
                    if self._is_stopped() or signals.received is not None:
                        break
        if signals.received is None:
            if train.keep_checkpoint and not self._is_saved:
                self.save()
            if not state.curve or state.curve[-1]["update"] != state.updates:
                self._validate(saves=False)

    def _batches(self, plan: list[list[int]]) -> Iterator[tuple[list[int], Any]]:
        """Yields each batch with the indices of its examples; a thread prepares the next two batches."""

        def make_batch(indices: list[int]) -> Any:
            examples = [self.splits.train[i] for i in indices]
            return to_device(self.run.task.collate(examples, self.run.maker), self.run.device)

        with ThreadPoolExecutor(max_workers=1) as executor:
            prefetched: deque[tuple[list[int], Future[Any]]] = deque()
            for indices in plan:
                prefetched.append((indices, executor.submit(make_batch, indices)))
                if len(prefetched) > 2:
                    first, batch = prefetched.popleft()
                    yield first, batch.result()
            for first, batch in prefetched:
                yield first, batch.result()

    def _update(self, batch: Any) -> None:
        run, state = self.run, self.state
        run.model.train()
        torch.manual_seed(update_seed(run.config.train.seed, state.updates))
        with run.autocast:
            loss = self.model.loss(batch)
        is_finite = update(run.model, self.optimizer, loss + self.model.inputs.penalty(), run.config.optim.clip_norm)
        self._unread.append(torch.stack([loss.detach().float(), is_finite.float()]))
        state.updates += 1
        self._is_saved = False
        state.position += 1
        self.average.step(run.model, state.updates)
        if len(self._unread) == READ_LOSSES_EVERY:
            self._read_losses()

    def _read_losses(self) -> None:
        """Reads the losses from the device; raises a DataError after too many consecutive non-finite gradients."""
        losses = torch.stack(self._unread).tolist() if self._unread else []
        self._unread = []
        for loss, is_finite in losses:
            if is_finite:
                self._bad_updates = 0
                self.state.losses.append(loss)
                continue
            self._bad_updates += 1
            if self._bad_updates >= MAX_BAD_UPDATES:
                raise DataError(
                    f"{self._bad_updates} consecutive updates had gradients that are not finite.",
                    "Lower optim.lr or clip_norm.",
                )

    def _validate(self, *, saves: bool = True) -> None:
        run, state, optim = self.run, self.state, self.run.config.optim
        self._read_losses()
        self.average.swap(run.model)
        dev = evaluate(run, self.splits.dev)
        score = dev[run.task.metric]
        loss = sum(state.losses) / len(state.losses) if state.losses else math.nan
        is_better = state.best is None or score > state.best["score"]
        epoch = state.epoch if state.position == 0 else state.epoch + 1  # the epoch of the last update, from 1
        if is_better:
            state.best = {"epoch": epoch, "update": state.updates, "score": score, "dev": dev}
            self.best_weights = {n: t.detach().clone() for n, t in run.model.state_dict().items()}
        self.average.swap(run.model)
        state.without_better = 0 if is_better else state.without_better + 1
        state.curve.append(
            {
                "epoch": epoch,
                "update": state.updates,
                "loss": loss if math.isfinite(loss) else None,
                "lr": self.optimizer.param_groups[0]["lr"],
                "dev": dev,
                "seconds": round(state.seconds, 2),
            }
        )
        state.losses = []
        self._is_saved = False
        if optim.halve_after and state.without_better and state.without_better % optim.halve_after == 0:
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5
        mark = " *" if is_better else ""
        self.say(f"epoch {epoch}, update {state.updates:,}: loss {loss:.4f}, dev {run.task.metric} {score:.2f}{mark}")
        slow = self._save_seconds > QUICK_SAVE
        if saves and (not slow or self._save_seconds <= MAX_SAVING_SHARE * (time.monotonic() - self._saved_at)):
            self.save()

    def _is_validation_due(self) -> bool:
        """Whether enough updates were made since the last validation to validate at the end of this epoch."""
        state = self.state
        num_updates = state.updates - (state.curve[-1]["update"] if state.curve else 0)
        return num_updates >= self.run.config.train.validate_after

    def _is_stopped(self) -> bool:
        """Whether early stopping ends the run."""
        return self.state.without_better >= self.run.config.train.patience

    def save(self) -> None:
        """Writes a checkpoint of the last update."""
        start = time.monotonic()
        self._read_losses()
        training = {
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.values,
            "place": asdict(self.state),
        }
        weights = {"model": self.run.model.state_dict(), "best": self.best_weights}
        save_checkpoint(self.out, self.state.updates, weights, training, self._identity)
        self._is_saved = True
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - start

    def _resume(self) -> None:
        """Restores the checkpoint, if there is one; settings, data and biLM must be the same."""
        checkpoint = load_checkpoint(self.out)
        if checkpoint is None:
            return
        path, (weights, training, manifest) = checkpoint
        check_config(self.out, manifest["config"], self.run.config.to_dict())  # more epochs are allowed
        for key in ("data", "elmo"):
            check_same(self.out, {key: manifest[key]}, {key: self._identity[key]})
        self.run.model.load_state_dict(weights["model"])
        self.best_weights = weights["best"]
        load_optimizer(self.optimizer, training["optimizer"])
        for name, value in training["average"].items():
            self.average.values[name].copy_(value)
        self.state = TrainingState(**training["place"])
        self._is_saved = True
        self.say(f"continuing {path} after update {self.state.updates:,}")


def update_seed(seed: int, updates: int) -> int:
    """The random seed of one update, different for all updates and runs."""
    return (seed * 0x9E3779B97F4A7C15 + updates * 0xBF58476D1CE4E5B9 + 1) % (1 << 63)
