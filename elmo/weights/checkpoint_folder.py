"""A training checkpoint as a folder, written completely or not at all, of pretraining and of task runs.

model.safetensors   weights; a run may store further sets of weights beside it
training.pt         optimizer and position (tensors, numbers, strings, lists and dicts only)
manifest.json       sha256 of the other files and what the run adds; written last
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo.errors import DataError
from elmo.files import atomic_folder, sha256_file

_TRAINING, _MANIFEST = "training.pt", "manifest.json"
_DAMAGE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, EOFError,
    SafetensorError, pickle.UnpicklingError,
)  # fmt: skip

Weights = dict[str, Tensor]


def write_checkpoint(
    folder: Path, weights: Mapping[str, Weights], training: Mapping[str, Any], about: Mapping[str, Any]
) -> None:
    """Replaces `folder`; when this returns, a crash can no longer lose the checkpoint.

    `weights` gives each set of weights by the name of its file without suffix; `about` goes into the manifest.
    """
    with atomic_folder(folder, overwrite=True) as partial:
        for name, tensors in weights.items():
            save_weights(partial / f"{name}.safetensors", tensors)
        torch.save(dict(training), partial / _TRAINING)
        files = {path.name: sha256_file(path) for path in sorted(partial.iterdir())}
        text = json.dumps({**about, "files": files}, indent=1) + "\n"
        (partial / _MANIFEST).write_text(text, encoding="utf-8")


def read_checkpoint(folder: Path, *names: str) -> tuple[dict[str, Weights], dict[str, Any], dict[str, Any]]:
    """The sets of weights called `names`, the training state and the manifest; DataError when one is damaged."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        for name in (*(f"{name}.safetensors" for name in names), _TRAINING):
            if sha256_file(folder / name) != manifest["files"][name]:
                raise ValueError(f"{name} is not the file its manifest describes")
        weights = {name: load_file(folder / f"{name}.safetensors") for name in names}
        # weights_only: the checksum is right, and even so nothing but tensors and plain values is unpickled
        training = torch.load(folder / _TRAINING, map_location="cpu", weights_only=True, mmap=False)
    except _DAMAGE as error:
        raise DataError(
            f"{folder}: damaged checkpoint ({str(error)[:200]}).",
            "Delete this folder: the run then continues from an earlier checkpoint, or starts over.",
        ) from error
    return weights, training, manifest


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file with the permissions that the umask gives a new file; the library's own are 0600."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in weights.items()}, path)
    except SafetensorError as error:  # the library's own error for a full disk
        raise OSError(str(error)) from error
    path.chmod(mode)
