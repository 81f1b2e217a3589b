"""A checkpoint folder: what is written is read back, damage is named, and files are as private as the umask says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from elmo.errors import DataError
from elmo.weights.checkpoint_folder import read_checkpoint, save_weights, write_checkpoint

WEIGHTS = {"model": {"a": torch.arange(6.0).reshape(2, 3)}, "best": {"a": torch.zeros(2, 3).t()}}
TRAINING = {"step": 3, "optimizer": {"sum": torch.ones(2)}, "best": None}


def test_checkpoint_reads_back(tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces the first
        write_checkpoint(tmp_path / "checkpoint", WEIGHTS, TRAINING, {"seed": 5})
    weights, training, manifest = read_checkpoint(tmp_path / "checkpoint", "model", "best")
    assert torch.equal(weights["model"]["a"], WEIGHTS["model"]["a"])
    assert torch.equal(weights["best"]["a"], WEIGHTS["best"]["a"])
    assert torch.equal(training["optimizer"]["sum"], torch.ones(2))
    assert manifest["seed"] == 5


@pytest.mark.parametrize("name", ["model.safetensors", "best.safetensors", "training.pt", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damage_is_named(tmp_path: Path, name: str, damage: str) -> None:
    write_checkpoint(tmp_path / "checkpoint", WEIGHTS, TRAINING, {})
    path = tmp_path / "checkpoint" / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    with pytest.raises(DataError, match=r"checkpoint: damaged checkpoint \("):
        read_checkpoint(tmp_path / "checkpoint", "model", "best")


def test_weights_the_checkpoint_does_not_hold_are_damage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint", {"model": WEIGHTS["model"]}, TRAINING, {})
    with pytest.raises(DataError, match=r"best\.safetensors"):
        read_checkpoint(tmp_path / "checkpoint", "model", "best")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_weights_files_have_the_mode_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        save_weights(tmp_path / "model.safetensors", WEIGHTS["model"])
        write_checkpoint(tmp_path / "checkpoint", WEIGHTS, TRAINING, {})
    finally:
        os.umask(before)
    for path in (tmp_path / "model.safetensors", *(tmp_path / "checkpoint").iterdir()):
        assert path.stat().st_mode & 0o777 == mode, path.name
