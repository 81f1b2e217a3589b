"""The checkpoint of a task run in RUN/checkpoint/: current weights, best weights, training state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from elmo.weights.checkpoint_folder import Weights, read_checkpoint, write_checkpoint

FOLDER = "checkpoint"


def save_checkpoint(out: Path, now: Weights, best: Weights, training: dict[str, Any], about: dict[str, Any]) -> None:
    """Replaces the checkpoint of the run in `out`; when this returns, a crash can no longer lose it."""
    write_checkpoint(out / FOLDER, {"model": now, "best": best}, training, about)


def load_checkpoint(out: Path) -> tuple[Weights, Weights, dict[str, Any], dict[str, Any]] | None:
    """Current weights, best weights, training state and manifest; None without checkpoint, DataError if damaged."""
    if not (out / FOLDER).exists():
        return None
    weights, training, manifest = read_checkpoint(out / FOLDER, "model", "best")
    return weights["model"], weights["best"], training, manifest


def drop_checkpoint(out: Path) -> None:
    """Removes the checkpoint of a finished run."""
    shutil.rmtree(out / FOLDER, ignore_errors=True)
