"""The weights of the best validation, stored beside the checkpoints of a pretraining run: best/step-N.safetensors."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from elmo.files import atomic_file
from elmo.model.bilm import BiLM
from elmo.weights.checkpoint_folder import save_weights

log = logging.getLogger(__name__)


def stored_weights(model: BiLM) -> dict[str, Tensor]:
    """The model's tensors; a softmax that is tied to the word table is left out, because it is the same tensor."""
    tied = model.config.head is not None and model.config.head.tied
    return {name: t.detach() for name, t in model.state_dict().items() if not (tied and name == "head.weight")}


def save_best(folder: Path, model: BiLM, step: int) -> None:
    """Stores the weights of the best validation so far.

    Earlier files stay until `prune_best` is called, after a checkpoint that names this step is written.
    """
    (folder / "best").mkdir(exist_ok=True)
    with atomic_file(_best_path(folder, step)) as partial:
        save_weights(partial, stored_weights(model))


def load_best(folder: Path, best: dict[str, Any] | None) -> dict[str, Tensor] | None:
    """The weights that `save_best` stored for the validation `best`; None without validation or without its file."""
    if best is None:
        return None
    path = _best_path(folder, best["step"])
    if not path.exists():  # the run went back to an earlier checkpoint, after a better validation had replaced the file
        log.warning("%s is missing: the last weights are used as the best.", path)
        return None
    return load_file(path)


def prune_best(folder: Path, best: dict[str, Any] | None) -> None:
    """Removes the weights of validations that are no longer the best."""
    for path in (folder / "best").glob("*"):
        if best is None or path != _best_path(folder, best["step"]):
            path.unlink()


def _best_path(folder: Path, step: int) -> Path:
    return folder / "best" / f"step-{step:08d}.safetensors"
