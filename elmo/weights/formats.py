"""Detects the format of a model on disk and calls the reader of that format.

folder with model.safetensors          elmo: this package's own
folder, .hdf5 or options.json          hdf5: options + weights, as published
.zip                                   zip: one of the others, packed (NLPL repository)
folder with config.toml, checkpoints   run: a pretraining run, whose model is in its folder model
folder with one folder in it           nested: one of the others, one level down
folder with encoder.pkl                manylangs: ELMoForManyLangs
folder with a checkpoint, .index       tensorflow: TensorFlow checkpoint of bilm-tf
.th, .tar.gz                           allennlp: AllenNLP state dict or archive that contains an ELMo
"""

from __future__ import annotations

import dataclasses
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from elmo.errors import WeightsError
from elmo.files import check_regular
from elmo.weights import store
from elmo.weights.allennlp_archive import read_allennlp
from elmo.weights.archives import unpacked
from elmo.weights.hdf5 import HDF5_MAGIC
from elmo.weights.manylangs import read_manylangs
from elmo.weights.memory_bound import memory_bound
from elmo.weights.model_parts import ModelParts
from elmo.weights.published import read_published
from elmo.weights.tf_checkpoint import read_tf_checkpoint

RUN_CONFIG, RUN_CHECKPOINTS, RUN_MODEL = "config.toml", "checkpoints", "model"  # in the folder of a pretraining run


def read_model(source: str | Path, weights: str | Path | None = None, *, lazy_head: bool = False) -> ModelParts:
    """A model's parts from a folder, a file, or the pair (options file, weights file).

    With `lazy_head`, a format that supports it leaves the softmax on disk until it is needed.
    """
    path = _existing(Path(source))
    if weights is not None:
        return read_published(path, _existing(Path(weights)))
    kind = detect(path)
    with memory_bound(path):
        if kind == "run":
            return _read_run(path, lazy_head=lazy_head)
        return store.read_store(path, lazy_head=lazy_head) if kind == "elmo" else READERS[kind](path)


def detect(path: Path) -> str:
    """The format of the model at a path: a key of `READERS`."""
    if path.is_dir():
        return _detect_folder(path)
    if not path.is_file():
        raise WeightsError(f"{path} is neither a file nor a folder.", "A model is a folder or a file.")
    try:
        with open(path, "rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if magic == HDF5_MAGIC:
        return "hdf5"
    if magic.startswith(b"PK"):
        return "allennlp" if _is_torch_zip(path) else "zip"
    if path.name.endswith(".index"):
        return "tensorflow"
    if magic.startswith(b"\x1f\x8b") and path.name.endswith((".tar.gz", ".tgz")):
        return "allennlp"
    if path.suffix == ".th":
        return "allennlp"
    if path.suffix == ".json":
        return "hdf5"
    if path.suffix == ".safetensors":
        return "elmo"
    raise WeightsError(
        f"{path} is not a model file of a supported format (it starts with {magic!r}).",
        "Supported: a model folder, options.json + weights.hdf5, .zip, .th, .tar.gz, a TensorFlow checkpoint.",
    )


def _detect_folder(folder: Path) -> str:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be read ({error.strerror or error}).") from error
    for path in paths:
        check_regular(path, WeightsError)
    names = {path.name for path in paths}
    if store.TENSORS in names or store.MANIFEST in names:
        return "elmo"
    if "encoder.pkl" in names:
        return "manylangs"
    if any(name.endswith((".hdf5", ".h5")) and "softmax" not in name for name in names):
        return "hdf5"
    if "checkpoint" in names or any(name.endswith(".index") for name in names):
        return "tensorflow"
    if {"model.tar.gz", "best.th"} & names:
        return "allennlp"
    if {RUN_CONFIG, RUN_CHECKPOINTS} <= names:
        return "run"
    if sum(_may_hold_model(p) for p in folder.iterdir()) == 1:
        return "nested"
    raise WeightsError(
        f"{folder}: no model found in this folder ({', '.join(sorted(names)[:6]) or 'empty'}).",
        "Expected model.safetensors + config.json, or options.json + a .hdf5 file.",
    )


def _read_run(folder: Path, *, lazy_head: bool = False) -> ModelParts:
    if not (folder / RUN_MODEL).exists():
        raise WeightsError(
            f"{folder}: this pretraining run has no finished model yet.",
            f"The command that started the run continues it; {RUN_MODEL} is written at its end.",
        )
    return read_model(folder / RUN_MODEL, lazy_head=lazy_head)


def _may_hold_model(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(("_", "."))


def _read_zip(path: Path) -> ModelParts:
    with unpacked(path) as folder:
        try:
            parts = read_model(folder)
        except WeightsError as error:  # name the zip file: the temporary folder is deleted before the message is shown
            raise WeightsError(error.message.replace(str(folder), str(path)), error.hint) from error
    return dataclasses.replace(parts, source=str(path), about={**parts.about, "source": path.name})


def _read_nested(path: Path) -> ModelParts:
    inner = next(p for p in sorted(path.iterdir()) if _may_hold_model(p))
    kind = detect(inner)
    if kind == "nested":
        raise WeightsError(f"{path}: no model found in this folder, nor in {inner.name}.", "Name the model's folder.")
    return READERS[kind](inner)


def _existing(path: Path) -> Path:
    try:
        path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise WeightsError(f"{str(path)!r}: cannot be read ({reason}).", "Check the path.") from error
    return path


def _is_torch_zip(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, struct.error) as error:
        raise WeightsError(f"{path}: damaged zip ({str(error)[:200]}).", "Download it again.") from error


READERS: dict[str, Callable[[Path], ModelParts]] = {
    "elmo": store.read_store,
    "hdf5": read_published,
    "zip": _read_zip,
    "nested": _read_nested,
    "run": _read_run,
    "tensorflow": read_tf_checkpoint,
    "allennlp": read_allennlp,
    "manylangs": read_manylangs,
}
