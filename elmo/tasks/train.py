"""The training loop of all six tasks: seeded, with early stopping on dev, resumable with identical results.

The random numbers of an update depend only on the seed and the number of the update, and the batches of an epoch only
on the seed and the epoch, so that three numbers describe the position in a run. The same command resumes a run that was
killed from its last checkpoint; on the CPU the result is identical bit for bit. A checkpoint is written at each
validation, or less often if writing is slow.
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
from elmo.files import atomic_file, explain_write
from elmo.progress import Progress
from elmo.records import write_record
from elmo.tasks.batches import plan_epoch
from elmo.tasks.checkpoint import drop_checkpoint, load_checkpoint, save_checkpoint
from elmo.tasks.checks import check_config, check_done, check_folder, check_same
from elmo.tasks.config import RunConfig
from elmo.tasks.optim import WeightAverage, make_optimizer, update
from elmo.tasks.predict import evaluate
from elmo.tasks.record import elmo_identity, run_record
from elmo.tasks.run import RECORD, WEIGHTS, Run, Splits, new_run, save_vocabulary
from elmo.tasks.token_batch import to_device
from elmo.weights.checkpoint_folder import save_weights

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


def train(
    config: RunConfig, out: str | Path, *, say: Say = lambda line: None, show: bool | None = None
) -> dict[str, Any]:
    """Trains a model, or resumes an unfinished run; returns the record. A finished run is not trained again.

    The test file is scored once, with the best weights.
    """
    out = Path(out)
    if (out / RECORD).exists():
        record = check_done(out, config)
        say(f"{out} is done: {record['metric']} {record['best']['score']:.2f} on dev")
        return record
    check_folder(out)
    start = time.monotonic()
    run, splits = new_run(config, show=show)
    with explain_write(out):
        out.mkdir(parents=True, exist_ok=True)
    preparing_seconds = time.monotonic() - start
    say(describe(run, splits))
    loop = TrainingLoop(run, splits, out, say=say, show=show)
    loop.run_to_end()
    run.model.load_state_dict(loop.best_weights)
    state, best = loop.state, loop.state.best
    assert best is not None
    test = evaluate(run, splits.test, show=show) if splits.test is not None else None
    record = run_record(
        run,
        splits,
        dev=best["dev"],
        test=test,
        best={key: best[key] for key in ("epoch", "update", "score")},
        epochs=state.curve[-1]["epoch"],
        updates=state.updates,
        curve=state.curve,
        seconds={"preparing": round(preparing_seconds, 2), "training": round(state.seconds, 2)},
    )
    save_vocabulary(out, run)
    with atomic_file(out / WEIGHTS) as partial:
        save_weights(partial, loop.best_weights)
    write_record(out / RECORD, record)
    drop_checkpoint(out)
    metric = run.task.metric
    say(f"best {metric} on dev {best['score']:.2f}" + (f", on test {test[metric]:.2f}" if test else ""))
    return record


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
        self._resume()

    def run_to_end(self) -> None:
        """Makes updates and validations until the last epoch, or until the dev score stops improving."""
        train, state = self.run.config.train, self.state
        sizes = [self.run.task.size(example) for example in self.splits.train]
        start, seconds_before = time.monotonic(), state.seconds
        while state.epoch < train.epochs and not self._is_stopped():
            plan = plan_epoch(sizes, train.batch_size, seed=train.seed, epoch=state.epoch, max_tokens=train.max_tokens)
            label = f"epoch {state.epoch + 1}"
            with Progress(label, len(self.splits.train), unit="examples", show=self.show) as progress:
                progress.done = sum(map(len, plan[: state.position]))
                for indices, batch in self._batches(plan[state.position :]):
                    self._update(batch)
                    progress.advance(len(indices))
                    at_end = state.position == len(plan)
                    if at_end:
                        state.epoch, state.position = state.epoch + 1, 0
                    if (at_end and self._is_validation_due()) or (
                        train.validate_every and not at_end and state.position % train.validate_every == 0
                    ):
                        self._read_losses()
                        state.seconds = seconds_before + time.monotonic() - start
                        self._validate()
                        if self._is_stopped():
                            break

    def _batches(self, plan: list[list[int]]) -> Iterator[tuple[list[int], Any]]:
        """Yields the indices of the examples of each batch, and the batch; a thread prepares the next two batches."""

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

    def _validate(self) -> None:
        run, state, optim = self.run, self.state, self.run.config.optim
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
        if optim.halve_after and state.without_better and state.without_better % optim.halve_after == 0:
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.5
        mark = " *" if is_better else ""
        self.say(f"epoch {epoch}, update {state.updates:,}: loss {loss:.4f}, dev {run.task.metric} {score:.2f}{mark}")
        self._save()

    def _is_validation_due(self) -> bool:
        """Whether to validate at the end of this epoch: after enough updates, and always after the last epoch."""
        state, train = self.state, self.run.config.train
        num_updates = state.updates - (state.curve[-1]["update"] if state.curve else 0)  # since the last validation
        return num_updates >= train.validate_after or state.epoch >= train.epochs

    def _is_stopped(self) -> bool:
        """Whether early stopping ends the run."""
        return self.state.without_better >= self.run.config.train.patience

    def _save(self) -> None:
        """Writes a checkpoint, unless checkpoints are slow and the last one is recent."""
        start = time.monotonic()
        if self._save_seconds > QUICK_SAVE and self._save_seconds > MAX_SAVING_SHARE * (start - self._saved_at):
            return
        training = {
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.values,
            "place": asdict(self.state),
        }
        save_checkpoint(self.out, self.run.model.state_dict(), self.best_weights, training, self._identity)
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - start

    def _resume(self) -> None:
        """Restores the checkpoint, if there is one; settings, data and biLM must be the same."""
        checkpoint = load_checkpoint(self.out)
        if checkpoint is None:
            return
        weights, self.best_weights, training, manifest = checkpoint
        check_config(self.out, manifest["config"], self.run.config.to_dict())
        for key in ("data", "elmo"):
            check_same(self.out, {key: manifest[key]}, {key: self._identity[key]})
        self.run.model.load_state_dict(weights)
        self.optimizer.load_state_dict(training["optimizer"])
        for name, value in training["average"].items():
            self.average.values[name].copy_(value)
        self.state = TrainingState(**training["place"])
        self.say(f"continuing {self.out} after update {self.state.updates:,}")


def update_seed(seed: int, updates: int) -> int:
    """The random seed of one update, different for all updates and runs."""
    return (seed * 0x9E3779B97F4A7C15 + updates * 0xBF58476D1CE4E5B9 + 1) % (1 << 63)


def describe(run: Run, splits: Splits) -> str:
    """One line that describes the run before training."""
    elmo = run.config.elmo
    num_weights = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
    elmo_use = f"ELMo {elmo.mode} at {elmo.place}" if elmo.used else "no ELMo"
    return (
        f"{run.task.title}: {len(splits.train):,} examples, {num_weights / 1e6:.2f}M weights, {elmo_use}, "
        f"on {run.device}"
    )
