"""The one training loop of the six tasks: seeded, early-stopped on dev, resumable to the same end.

Every update draws its chance from the seed and the update's number, and every epoch's batches come from the seed and
the epoch, so the place in a run is three numbers. The same command goes on where a killed one left off, at its last
checkpoint; on the CPU the result is the same to the last bit. A checkpoint is written at each validation, or less often
where writing takes long.
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
from elmo.tasks.batches import plan_epoch
from elmo.tasks.checkpoint import drop_checkpoint, load_checkpoint, save_checkpoint, save_weights
from elmo.tasks.checks import check_config, check_done, check_folder, check_same
from elmo.tasks.config import RunConfig
from elmo.tasks.optim import WeightAverage, make_optimizer, update
from elmo.tasks.predict import evaluate
from elmo.tasks.record import elmo_identity, make_record, write_record
from elmo.tasks.run import RECORD, WEIGHTS, Run, Splits, new_run, save_words
from elmo.tasks.token_batch import to_device

MAX_BAD_UPDATES = 20  # in a row with gradients that are not finite, before giving up
LOOK_EVERY = 50  # updates whose losses stay on the device before anybody waits for them
SAVING_SHARE = 0.05  # of the time, at most, goes into checkpoints that are slow to write
QUICK_SAVE = 0.25  # seconds: what takes less is written at every validation

Say = Callable[[str], None]


@dataclass
class Place:
    """Where a run is: what the next update needs to know besides weights."""

    epoch: int = 0
    position: int = 0  # batches of this epoch that are done
    updates: int = 0
    losses: list[float] = field(default_factory=list)  # since the last validation
    curve: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None  # epoch, update, score, dev
    without_better: int = 0  # validations
    seconds: float = 0.0


def train(
    config: RunConfig, out: str | Path, *, say: Say = lambda line: None, show: bool | None = None
) -> dict[str, Any]:
    """Trains, or goes on, or finds that all is done; gives the record. Test is scored once, with the best weights."""
    out = Path(out)
    if (out / RECORD).exists():
        record = check_done(out, config)
        say(f"{out} is done: {record['metric']} {record['best']['score']:.2f} on dev")
        return record
    check_folder(out)
    begun = time.monotonic()
    run, splits = new_run(config, show=show)
    with explain_write(out):
        out.mkdir(parents=True, exist_ok=True)
    prepared = time.monotonic() - begun
    say(describe(run, splits))
    loop = Loop(run, splits, out, say=say, show=show)
    loop.run_to_end()
    run.model.load_state_dict(loop.best_weights)
    place, best = loop.place, loop.place.best
    assert best is not None
    test = evaluate(run, splits.test, show=show) if splits.test is not None else None
    record = make_record(
        run,
        splits,
        dev=best["dev"],
        test=test,
        best={key: best[key] for key in ("epoch", "update", "score")},
        epochs=place.curve[-1]["epoch"],
        updates=place.updates,
        curve=place.curve,
        seconds={"preparing": round(prepared, 2), "training": round(place.seconds, 2)},
    )
    save_words(out, run)
    with atomic_file(out / WEIGHTS) as partial:
        save_weights(partial, loop.best_weights)
    write_record(out, record)
    drop_checkpoint(out)
    metric = run.task.metric
    say(f"best {metric} on dev {best['score']:.2f}" + (f", on test {test[metric]:.2f}" if test else ""))
    return record


class Loop:
    """One run's weights, optimizer and place, and the steps that move them."""

    def __init__(self, run: Run, splits: Splits, out: Path, *, say: Say, show: bool | None) -> None:
        self.run, self.splits, self.out, self.say, self.show = run, splits, out, say, show
        self.model: Any = run.model
        self.optimizer = make_optimizer(run.model, run.config)
        self.average = WeightAverage(run.model, run.config.optim.ema)
        self.place = Place()
        self.best_weights: dict[str, Tensor] = {}
        self._about = {"config": run.config.to_dict(), "data": splits.about, "elmo": elmo_identity(run)}
        self._bad = 0
        self._unread: list[Tensor] = []  # (2,) an update: its loss, and whether it moved anything
        self._saved, self._save_seconds = 0.0, 0.0  # when the last checkpoint was there, and how long it took
        self._resume()

    def run_to_end(self) -> None:
        """Updates and validations until the epochs are over or nothing gets better."""
        train, place = self.run.config.train, self.place
        sizes = [self.run.task.size(example) for example in self.splits.train]
        begun, before = time.monotonic(), place.seconds
        while place.epoch < train.epochs and not self._is_over():
            plan = plan_epoch(sizes, train.batch_size, seed=train.seed, epoch=place.epoch, max_tokens=train.max_tokens)
            label = f"epoch {place.epoch + 1}"
            with Progress(label, len(self.splits.train), unit="examples", show=self.show) as progress:
                progress.done = sum(map(len, plan[: place.position]))
                for numbers, batch in self._batches(plan[place.position :]):
                    self._update(batch)
                    progress.advance(len(numbers))
                    at_end = place.position == len(plan)
                    if at_end:
                        place.epoch, place.position = place.epoch + 1, 0
                    if (at_end and self._is_due()) or (
                        train.validate_every and not at_end and place.position % train.validate_every == 0
                    ):
                        self._read_losses()
                        place.seconds = before + time.monotonic() - begun
                        self._validate()
                        if self._is_over():
                            break

    def _batches(self, plan: list[list[int]]) -> Iterator[tuple[list[int], Any]]:
        """Each batch's examples by number, and its tensors; the next two are made while one is learned from."""

        def make(numbers: list[int]) -> Any:
            examples = [self.splits.train[i] for i in numbers]
            return to_device(self.run.task.collate(examples, self.run.maker), self.run.device)

        with ThreadPoolExecutor(max_workers=1) as worker:
            waiting: deque[tuple[list[int], Future[Any]]] = deque()
            for numbers in plan:
                waiting.append((numbers, worker.submit(make, numbers)))
                if len(waiting) > 2:
                    first, made = waiting.popleft()
                    yield first, made.result()
            for first, made in waiting:
                yield first, made.result()

    def _update(self, batch: Any) -> None:
        run, place = self.run, self.place
        run.model.train()
        torch.manual_seed(chance_of(run.config.train.seed, place.updates))
        with run.autocast:
            loss = self.model.loss(batch)
        moved = update(run.model, self.optimizer, loss + self.model.inputs.penalty(), run.config.optim.clip_norm)
        self._unread.append(torch.stack([loss.detach().float(), moved.float()]))
        place.updates += 1
        place.position += 1
        self.average.step(run.model, place.updates)
        if len(self._unread) == LOOK_EVERY:
            self._read_losses()

    def _read_losses(self) -> None:
        """Waits for the device; gives up where update after update could not be made."""
        found = torch.stack(self._unread).tolist() if self._unread else []
        self._unread = []
        for loss, moved in found:
            if moved:
                self._bad = 0
                self.place.losses.append(loss)
                continue
            self._bad += 1
            if self._bad >= MAX_BAD_UPDATES:
                raise DataError(
                    f"{self._bad} updates in a row had gradients that are not finite.", "Lower optim.lr or clip_norm."
                )

    def _validate(self) -> None:
        run, place, optim = self.run, self.place, self.run.config.optim
        self.average.swap(run.model)
        dev = evaluate(run, self.splits.dev)
        score = dev[run.task.metric]
        loss = sum(place.losses) / len(place.losses) if place.losses else math.nan
        is_better = place.best is None or score > place.best["score"]
        epoch = place.epoch if place.position == 0 else place.epoch + 1  # the epoch it belongs to, from 1
        if is_better:
            place.best = {"epoch": epoch, "update": place.updates, "score": score, "dev": dev}
            self.best_weights = {n: t.detach().clone() for n, t in run.model.state_dict().items()}
        self.average.swap(run.model)
        place.without_better = 0 if is_better else place.without_better + 1
        place.curve.append(
            {
                "epoch": epoch,
                "update": place.updates,
                "loss": loss if math.isfinite(loss) else None,
                "lr": self.optimizer.param_groups[0]["lr"],
                "dev": dev,
                "seconds": round(place.seconds, 2),
            }
        )
        place.losses = []
        if optim.halve_after and place.without_better and place.without_better % optim.halve_after == 0:
            for weights in self.optimizer.param_groups:
                weights["lr"] *= 0.5
        mark = " *" if is_better else ""
        self.say(f"epoch {epoch}, update {place.updates:,}: loss {loss:.4f}, dev {run.task.metric} {score:.2f}{mark}")
        self._save()

    def _is_due(self) -> bool:
        """Whether the end of this epoch is validated: of tiny epochs not each one is, but the last always."""
        place, train = self.place, self.run.config.train
        since = place.updates - (place.curve[-1]["update"] if place.curve else 0)
        return since >= train.validate_after or place.epoch >= train.epochs

    def _is_over(self) -> bool:
        return self.place.without_better >= self.run.config.train.patience

    def _save(self) -> None:
        begun = time.monotonic()
        if self._save_seconds > QUICK_SAVE and self._save_seconds > SAVING_SHARE * (begun - self._saved):
            return
        training = {
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.values,
            "place": asdict(self.place),
        }
        save_checkpoint(self.out, self.run.model.state_dict(), self.best_weights, training, self._about)
        self._saved = time.monotonic()
        self._save_seconds = self._saved - begun

    def _resume(self) -> None:
        found = load_checkpoint(self.out)
        if found is None:
            return
        now, self.best_weights, training, manifest = found
        check_config(self.out, manifest["config"], self.run.config.to_dict())
        for part in ("data", "elmo"):
            check_same(self.out, manifest[part], self._about[part], part)
        self.run.model.load_state_dict(now)
        self.optimizer.load_state_dict(training["optimizer"])
        for name, value in training["average"].items():
            self.average.values[name].copy_(value)
        self.place = Place(**training["place"])
        self.say(f"continuing {self.out} after update {self.place.updates:,}")


def chance_of(seed: int, updates: int) -> int:
    """The seed of one update's dropout: far from those of other updates and runs."""
    return (seed * 0x9E3779B97F4A7C15 + updates * 0xBF58476D1CE4E5B9 + 1) % (1 << 63)


def describe(run: Run, splits: Splits) -> str:
    """One line about what is about to be trained."""
    elmo = run.config.elmo
    count = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
    what = f"ELMo {elmo.mode} at {elmo.place}" if elmo.used else "no ELMo"
    return f"{run.task.title}: {len(splits.train):,} examples, {count / 1e6:.2f}M weights, {what}, on {run.device}"
