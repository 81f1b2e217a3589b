"""The checkpoints of a pretraining run in checkpoints/step-N: enough to continue the run bit for bit.

`elmo.weights.checkpoint_folder` reads and writes them. The training state is the optimizer, the LSTM states, the
position in the text, and the best result so far.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo.schema import COUNT
from elmo.weights import checkpoint_folder
from elmo.weights.checkpoint_folder import (
    Weights,
    list_checkpoints,
    prune_checkpoints,
    read_checkpoint,
    remove_unfinished,
    step_of,
    step_path,
    write_checkpoint,
)

__all__ = [
    "list_checkpoints",
    "load_checkpoint",
    "newest_sound",
    "prune_checkpoints",
    "remove_unfinished",
    "save_checkpoint",
    "step_of",
]

_ABOUT: dict[str, Any] = {"identity": {}, "settings": {"train?": {"max_steps?": COUNT}}}  # in the manifest


def save_checkpoint(folder: Path, step: int, weights: Weights, training: dict[str, Any], about: dict[str, Any]) -> Path:
    """Writes `folder/step-N`; when this returns, a crash can no longer lose it."""
    path = step_path(folder, step)
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(path, {"model": weights}, _as_tensors(training), {"step": step, **about})
    return path


def load_checkpoint(path: Path) -> tuple[Weights, dict[str, Any], dict[str, Any]]:
    """Weights, training state and manifest of one checkpoint; DataError when it is damaged."""
    weights, training, manifest = read_checkpoint(path, "model", about=_ABOUT)
    return weights["model"], training, manifest


def newest_sound(folder: Path, *, strict: bool = False) -> tuple[Path, Weights, dict[str, Any], dict[str, Any]] | None:
    """The newest undamaged checkpoint: its path, weights, training state and manifest; None without checkpoints."""
    newest = checkpoint_folder.newest_sound(folder, "model", about=_ABOUT, strict=strict)
    if newest is None:
        return None
    path, (weights, training, manifest) = newest
    return path, weights["model"], training, manifest


def _as_tensors(value: Any) -> Any:
    """The same nested dicts with tensors instead of numpy arrays, which `torch.load(weights_only=True)` refuses."""
    if isinstance(value, dict):
        return {key: _as_tensors(item) for key, item in value.items()}
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
