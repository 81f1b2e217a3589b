"""Weights of the best validation, kept beside the checkpoints of a run until a better one comes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from elmo.files import atomic_file
from elmo.model.bilm import BiLM
from elmo.pretrain.train.checkpoint import save_weights

log = logging.getLogger(__name__)


def stored_weights(model: BiLM) -> dict[str, Tensor]:
    """The model's tensors, a tied softmax once."""
    tied = model.config.head is not None and model.config.head.tied
    return {name: t.detach() for name, t in model.state_dict().items() if not (tied and name == "head.weight")}


def save_best(folder: Path, model: BiLM, step: int) -> None:
    """Weights of the best validation so far. The one before stays until a checkpoint knows of this one."""
    (folder / "best").mkdir(exist_ok=True)
    with atomic_file(_best_path(folder, step)) as partial:
        save_weights(partial, stored_weights(model))


def load_best(folder: Path, best: dict[str, Any] | None) -> dict[str, Tensor] | None:
    """The weights `save_best` wrote for this validation; None where there was none."""
    if best is None:
        return None
    path = _best_path(folder, best["step"])
    if not path.exists():  # the run went back to a checkpoint from before a better one, and ended there
        log.warning("%s is gone: the last weights are taken for the best.", path)
        return None
    return load_file(path)


def prune_best(folder: Path, best: dict[str, Any] | None) -> None:
    """Removes weights of validations that are no longer the best."""
    for path in (folder / "best").glob("*"):
        if best is None or path != _best_path(folder, best["step"]):
            path.unlink()


def _best_path(folder: Path, step: int) -> Path:
    return folder / "best" / f"step-{step:08d}.safetensors"
