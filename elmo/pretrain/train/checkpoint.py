"""Everything needed to continue a run bit for bit, on disk, whole or not at all.

    checkpoints/step-00001000/
      model.safetensors   weights
      training.pt         optimizer, LSTM states, place in the text, best result so far (tensors and plain values only)
      manifest.json       sha256 of both, settings' hash; written last, then the folder takes its name

A folder without its manifest, or with another file than it describes, is damaged: the one before it is used, loudly.
"""

from __future__ import annotations

import json
import logging
import pickle
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo.errors import DataError
from elmo.files import atomic_folder, sha256_file

log = logging.getLogger(__name__)

_NAME = re.compile(r"step-(\d{8,})")
_DAMAGE = (SafetensorError, pickle.UnpicklingError)


def save_checkpoint(
    folder: Path, step: int, weights: dict[str, Tensor], training: dict[str, Any], about: dict[str, Any]
) -> Path:
    """Writes `folder/step-N`; when this returns, a crash can no longer lose it."""
    target = folder / f"step-{step:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_folder(target, overwrite=True) as partial:
        save_weights(partial / "model.safetensors", weights)
        torch.save(_as_tensors(training), partial / "training.pt")
        files = {name: sha256_file(partial / name) for name in ("model.safetensors", "training.pt")}
        text = json.dumps({"step": step, "files": files, **about}, indent=1)
        (partial / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return target


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Writes a safetensors file."""
    try:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in weights.items()}, path)
    except SafetensorError as error:  # a full disk, in a voice of its own
        raise OSError(str(error)) from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """Weights, training state and manifest of one checkpoint; DataError when it is damaged."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        for name, expected in manifest["files"].items():
            if sha256_file(path / name) != expected:
                raise DataError(f"{path / name} is not the file its manifest describes.")
        weights = load_file(path / "model.safetensors")
        # our own file, its sha256 just checked; even so, nothing but tensors and plain values is built from it
        training = torch.load(path / "training.pt", map_location="cpu", weights_only=True, mmap=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, EOFError, *_DAMAGE) as error:
        raise DataError(f"{path}: damaged checkpoint ({str(error)[:200]}).") from error
    return weights, training, manifest


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints by step, oldest first."""
    found = [p for p in folder.glob("step-*") if _NAME.fullmatch(p.name)] if folder.is_dir() else []
    return sorted(found, key=step_of)


def newest_sound(
    folder: Path, *, strict: bool = False
) -> tuple[Path, dict[str, Tensor], dict[str, Any], dict[str, Any]] | None:
    """The newest checkpoint that is whole; damaged ones are named in a warning (or an error when `strict`).

    None where there are no checkpoints; an error where none of them is whole, for starting over would lose the run.
    """
    found = list_checkpoints(folder)
    for path in reversed(found):
        try:
            return path, *load_checkpoint(path)
        except DataError as error:
            if strict:
                raise
            log.warning("%s Using the checkpoint before it.", error.message)
    if found:
        raise DataError(
            f"None of the {len(found)} checkpoints in {folder} is whole.", "Delete the folder to start over."
        )
    return None


def prune_checkpoints(folder: Path, keep: int, newest: int, also: Collection[int] = ()) -> None:
    """Keeps the `keep` checkpoints up to step `newest`, just written, and those of the steps `also`.

    Later ones are damaged and were passed over, or the run went back to before them.
    """
    found = list_checkpoints(folder)
    current = [path for path in found if step_of(path) <= newest]
    for path in set(found) - set(current[-keep:]) - {path for path in current if step_of(path) in also}:
        shutil.rmtree(path, ignore_errors=True)
    sweep_leftovers(folder)


def step_of(path: Path) -> int:
    return int(path.name.split("-")[1])


def sweep_leftovers(folder: Path) -> None:
    """Removes half-written folders of processes that died while writing."""
    for path in folder.glob(".step-*") if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)


def _as_tensors(value: Any) -> Any:
    """The same with numpy arrays as tensors, which are all that a careful reader of pickles takes."""
    if isinstance(value, dict):
        return {key: _as_tensors(v) for key, v in value.items()}
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
