"""The checkpoints of a task run in RUN/checkpoint/step-N: current weights, best weights, training state.

The newest two are kept, so that a run with a damaged one continues from the one before it, with the same result.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from elmo.files import explain_write
from elmo.schema import COUNT, Maybe
from elmo.weights.checkpoint_folder import (
    Checkpoint,
    list_checkpoints,
    newest_sound,
    prune_checkpoints,
    read_checkpoint,
    step_of,
    step_path,
    write_checkpoint,
)

FOLDER, KEPT = "checkpoint", 2
_SETS = ("model", "best")  # of weights
_CONFIG = {"elmo": {"mode": str}, "train": {"epochs?": COUNT}}
_ABOUT = {"config": _CONFIG, "data": {}, "elmo": Maybe({})}  # in the manifest


def save_checkpoint(
    out: Path, update: int, weights: dict[str, Any], training: dict[str, Any], about: dict[str, Any]
) -> None:
    """Writes the checkpoint of an update; when this returns, a crash can no longer lose it.

    `weights` holds the current weights as "model" and the best ones as "best".
    """
    assert weights.keys() == set(_SETS)
    folder = out / FOLDER
    with explain_write(folder):
        folder.mkdir(exist_ok=True)
    write_checkpoint(step_path(folder, update), weights, training, about)
    prune_checkpoints(folder, KEPT, update)


def load_checkpoint(out: Path) -> tuple[Path, Checkpoint] | None:
    """The newest undamaged checkpoint and its path; None without checkpoint, DataError if all are damaged."""
    folder = out / FOLDER
    newest = newest_sound(folder, *_SETS, about=_ABOUT)
    if newest is None and (folder / "manifest.json").exists():  # of a version that kept one checkpoint, in the folder
        return folder, read_checkpoint(folder, *_SETS, about=_ABOUT)
    return newest


def has_checkpoint(out: Path) -> bool:
    """Whether the run has a checkpoint, sound or damaged."""
    return bool(list_checkpoints(out / FOLDER))


def finish_checkpoints(out: Path, *, keep: bool) -> None:
    """Removes the checkpoints of a finished run; with `keep` all except the newest, from which it can continue."""
    folder = out / FOLDER
    checkpoints = list_checkpoints(folder)
    if keep and checkpoints:
        prune_checkpoints(folder, 1, step_of(checkpoints[-1]))
    else:
        shutil.rmtree(folder, ignore_errors=True)
