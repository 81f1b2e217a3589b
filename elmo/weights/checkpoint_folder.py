"""Training checkpoints, by step, of pretraining and of task runs; each is written completely or not at all.

    step-00001000/
      model.safetensors   weights; a run may store further sets of weights beside it
      training.pt         optimizer and position (tensors, numbers, strings, lists and dicts only)
      manifest.json       sha256 of the other files and what the run adds; written last

A damaged checkpoint is skipped with a warning, and the one before it is used.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo.errors import DataError
from elmo.files import atomic_folder, read_json, sha256_file
from elmo.schema import ANY, find_problem

log = logging.getLogger(__name__)

_NAME = re.compile(r"step-(\d{8,})")
_TRAINING, _MANIFEST = "training.pt", "manifest.json"
Weights = dict[str, Tensor]
Checkpoint = tuple[dict[str, Weights], dict[str, Any], dict[str, Any]]  # weights by name, training state, manifest


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


def read_checkpoint(folder: Path, *names: str, about: Any = ANY) -> Checkpoint:
    """The sets of weights called `names`, the training state and the manifest; DataError when one is damaged.

    `about` is the shape (`elmo.schema`) of what the run has added to the manifest.
    """
    try:
        manifest = read_json(folder / _MANIFEST, max_bytes=64 << 20)
        if problem := find_problem(manifest, about):
            raise ValueError(f"{_MANIFEST}: {problem}")
        for name in (*(f"{name}.safetensors" for name in names), _TRAINING):
            if sha256_file(folder / name) != manifest["files"][name]:
                raise ValueError(f"{name} is not the file its manifest describes")
        weights = {name: load_file(folder / f"{name}.safetensors") for name in names}
        # weights_only: the checksum is right, and even so nothing but tensors and plain values is unpickled
        training = torch.load(folder / _TRAINING, map_location="cpu", weights_only=True, mmap=False)
    except Exception as error:  # the unpickler of a damaged file raises errors of any kind
        raise DataError(
            f"{folder}: damaged checkpoint ({' '.join(str(error).split())[:200]}).",
            "Delete this folder: the run then continues from an earlier checkpoint, or starts over.",
        ) from error
    return weights, training, manifest


def step_path(folder: Path, step: int) -> Path:
    """The folder of the checkpoint of a step."""
    return folder / f"step-{step:08d}"


def step_of(path: Path) -> int:
    """The step in a checkpoint's name."""
    return int(path.name.split("-")[1])


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in `folder` by step, oldest first."""
    paths = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(paths, key=step_of)


def newest_sound(folder: Path, *names: str, about: Any = ANY, strict: bool = False) -> tuple[Path, Checkpoint] | None:
    """The newest undamaged checkpoint and its path; `names` and `about` as in `read_checkpoint`.

    Damaged ones are named in a warning (with `strict` in an error). None where there are no checkpoints; an error where
    all of them are damaged, because starting over would lose the run.
    """
    paths = list_checkpoints(folder)
    for path in reversed(paths):
        try:
            return path, read_checkpoint(path, *names, about=about)
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
    remove_unfinished(folder)


def remove_unfinished(folder: Path) -> None:
    """Removes half-written checkpoints of processes that died while they wrote."""
    for path in folder.glob(".step-*") if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file with the permissions that the umask gives a new file; the library's own are 0600."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: tensor.detach().contiguous().cpu() for name, tensor in weights.items()}, path)
    except SafetensorError as error:  # the library's own error for a full disk
        raise OSError(str(error)) from error
    path.chmod(mode)
