"""Everything needed to continue a task run to the same end, on disk, whole or not at all.

RUN/checkpoint/
  model.safetensors   weights now           best.safetensors   the best so far
  training.pt         optimizer, averages, place, curve (tensors and plain values only)
  manifest.json       sha256 of these and of the settings and data; written last, then the folder takes its name
"""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo.errors import DataError
from elmo.files import atomic_folder, sha256_file

FOLDER = "checkpoint"
_FILES = ("model.safetensors", "best.safetensors", "training.pt")
_DAMAGE = (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError)

Weights = dict[str, Tensor]


def save_checkpoint(out: Path, now: Weights, best: Weights, training: dict[str, Any], about: dict[str, Any]) -> None:
    """Writes the folder anew; when this returns, a crash can no longer lose it."""
    with atomic_folder(out / FOLDER, overwrite=True) as partial:
        save_weights(partial / "model.safetensors", now)
        save_weights(partial / "best.safetensors", best)
        torch.save(training, partial / "training.pt")
        manifest = {"files": {name: sha256_file(partial / name) for name in _FILES}, **about}
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def load_checkpoint(out: Path) -> tuple[Weights, Weights, dict[str, Any], dict[str, Any]] | None:
    """Weights now, best weights, training state, manifest; None where there is none, DataError where it is damaged."""
    folder = out / FOLDER
    if not folder.exists():
        return None
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        for name in _FILES:
            if sha256_file(folder / name) != manifest["files"][name]:
                raise ValueError(f"{name} is not the file the manifest describes")
        # our own file, its sha256 just checked; even so, nothing but tensors and plain values is built from it
        training = torch.load(folder / "training.pt", map_location="cpu", weights_only=True, mmap=False)
        return load_file(folder / _FILES[0]), load_file(folder / _FILES[1]), training, manifest
    except _DAMAGE as error:
        raise DataError(
            f"{folder}: damaged checkpoint ({str(error)[:200]}).", "Delete the folder to start over."
        ) from error


def drop_checkpoint(out: Path) -> None:
    """Removes the folder of a run that is done."""
    shutil.rmtree(out / FOLDER, ignore_errors=True)


def save_weights(path: Path, weights: Weights) -> None:
    """Writes a safetensors file."""
    try:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in weights.items()}, path)
    except SafetensorError as error:  # a full disk, in a voice of its own
        raise OSError(str(error)) from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # it comes private; a run is for whoever may enter its folder
