"""The checkpoints of a pretraining run, by step: enough to continue the run bit for bit.

    checkpoints/step-00001000/
      model.safetensors   weights
      training.pt         optimizer, LSTM states, position in the text, best result so far
      manifest.json       sha256 of both, settings; see `elmo.weights.checkpoint_folder`

A damaged checkpoint is skipped with a warning, and the one before it is used.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo.errors import DataError
from elmo.weights.checkpoint_folder import Weights, read_checkpoint, write_checkpoint

log = logging.getLogger(__name__)

_NAME = re.compile(r"step-(\d{8,})")


def save_checkpoint(folder: Path, step: int, weights: Weights, training: dict[str, Any], about: dict[str, Any]) -> Path:
    """Writes `folder/step-N`; when this returns, a crash can no longer lose it."""
    path = folder / f"step-{step:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(path, {"model": weights}, _as_tensors(training), {"step": step, **about})
    return path


def load_checkpoint(path: Path) -> tuple[Weights, dict[str, Any], dict[str, Any]]:
    """Weights, training state and manifest of one checkpoint; DataError when it is damaged."""
    weights, training, manifest = read_checkpoint(path, "model")
    return weights["model"], training, manifest


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in `folder` by step, oldest first."""
    paths = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(paths, key=step_of)


def newest_sound(folder: Path, *, strict: bool = False) -> tuple[Path, Weights, dict[str, Any], dict[str, Any]] | None:
    """The newest undamaged checkpoint: its path, weights, training state and manifest.

    Damaged ones are named in a warning (with `strict` in an error). None where there are no checkpoints; an error where
    all of them are damaged, because starting over would lose the run.
    """
    paths = list_checkpoints(folder)
    for path in reversed(paths):
        try:
            return path, *load_checkpoint(path)
        except DataError as error:
            if strict:
                raise
            log.warning("%s Using the checkpoint before it.", error.message)
    if paths:
        raise DataError(f"All {len(paths)} checkpoints in {folder} are damaged.", "Delete the folder to start over.")
    return None


def prune_checkpoints(folder: Path, keep: int, newest: int, also: Collection[int] = ()) -> None:
    """Keeps the `keep` checkpoints up to step `newest`, just written, and those of the steps `also`.

    Later ones are damaged and were passed over, or the run went back to before them.
    """
    checkpoints = list_checkpoints(folder)
    current = [path for path in checkpoints if step_of(path) <= newest]
    for path in set(checkpoints) - set(current[-keep:]) - {path for path in current if step_of(path) in also}:
        shutil.rmtree(path, ignore_errors=True)
    sweep_leftovers(folder)


def step_of(path: Path) -> int:
    """The step in a checkpoint's name."""
    return int(path.name.split("-")[1])


def sweep_leftovers(folder: Path) -> None:
    """Removes half-written checkpoints of processes that died while they wrote."""
    for path in folder.glob(".step-*") if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)


def _as_tensors(value: Any) -> Any:
    """The same nested dicts with tensors instead of numpy arrays, which `torch.load(weights_only=True)` refuses."""
    if isinstance(value, dict):
        return {key: _as_tensors(item) for key, item in value.items()}
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
