"""Trains a task run in its folder: locked, resumable, stopped by a signal without loss, recorded at the end.

The same command resumes a run that was interrupted from its last checkpoint. A signal (Ctrl-C, SIGTERM) ends the run
after the current update, which is saved.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.files import atomic_file
from elmo.records import write_record
from elmo.run_folder import lock_run_folder
from elmo.stop_signals import StopSignals
from elmo.tasks.checkpoint import finish_checkpoints, has_checkpoint
from elmo.tasks.checks import check_done, check_files, check_folder
from elmo.tasks.config import RunConfig
from elmo.tasks.predict import evaluate
from elmo.tasks.record import run_record
from elmo.tasks.run import RECORD, WEIGHTS, Run, Splits, new_run, save_vocabulary
from elmo.tasks.training_loop import Say, TrainingLoop
from elmo.weights.checkpoint_folder import save_weights


def train(
    config: RunConfig,
    out: str | Path,
    *,
    say: Say = lambda line: None,
    show: bool | None = None,
    wait: bool = False,
) -> dict[str, Any]:
    """Trains a model, or resumes an unfinished run; returns the record. A finished run is not trained again.

    With a larger number of epochs, a finished run continues from its last checkpoint, and its result is that of one
    long run.

    The test file is scored once, with the best weights. The folder is locked while the run is trained; if another
    process trains there, this is an OutputError, or with `wait` this waits for that process.
    """
    out = Path(out)
    if (record := _finished(config, out, say)) is not None:
        return record
    check_folder(out)
    check_files(config)
    with lock_run_folder(out, wait=say if wait else None):
        if (record := _finished(config, out, say)) is not None:  # another process has finished the run meanwhile
            return record
        return _train(config, out, say, show)


def _finished(config: RunConfig, out: Path, say: Say) -> dict[str, Any] | None:
    """The record of a run that has made all epochs of `config`; None if there is something to train."""
    if not (out / RECORD).exists():
        return None
    record = check_done(out, config)
    if record is not None:
        say(f"{out} is done: {record['metric']} {record['best']['score']:.2f} on dev")
    elif not has_checkpoint(out):
        raise ConfigError(
            f"{out} is a finished run without a checkpoint, so it cannot continue for {config.train.epochs} epochs.",
            "Choose another --out to train from the start. Runs with train.keep_checkpoint = true can continue.",
        )
    return record


def _train(config: RunConfig, out: Path, say: Say, show: bool | None) -> dict[str, Any]:
    start = time.monotonic()
    run, splits = new_run(config, show=show)
    preparing_seconds = time.monotonic() - start
    say(describe(run, splits))
    loop = TrainingLoop(run, splits, out, say=say, show=show)
    with StopSignals() as signals:
        loop.run_to_end(signals)
    if signals.received is not None:
        loop.save()
        say(
            f"stopped by {signal.Signals(signals.received).name} after update {loop.state.updates:,}; the state of the "
            f"run is saved in {out}. The same command resumes it."
        )
        signal.raise_signal(signals.received)  # acts as it does without a training: the exit code is 130 or 143
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
    finish_checkpoints(out, keep=config.train.keep_checkpoint)
    metric = run.task.metric
    say(f"best {metric} on dev {best['score']:.2f}" + (f", on test {test[metric]:.2f}" if test else ""))
    return record


def describe(run: Run, splits: Splits) -> str:
    """One line that describes the run before training."""
    elmo = run.config.elmo
    num_weights = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
    elmo_use = f"ELMo {elmo.mode} at {elmo.place}" if elmo.used else "no ELMo"
    return (
        f"{run.task.title}: {len(splits.train):,} examples, {num_weights / 1e6:.2f}M weights, {elmo_use}, "
        f"on {run.device}"
    )
