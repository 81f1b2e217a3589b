"""Any model on disk, by what it is: the format is found out, never asked for.

folder with model.safetensors          this package's own
folder, .hdf5 or options.json          options + weights, as published
.zip                                   one of the others, packed (NLPL repository)
folder with encoder.pkl                ELMoForManyLangs
folder with a checkpoint, .index       TensorFlow checkpoint of bilm-tf
.th, .tar.gz                           AllenNLP state dict or archive with an ELMo in it
"""

from __future__ import annotations

import dataclasses
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from elmo.errors import WeightsError
from elmo.model.config import BiLMConfig, CharConfig, HeadConfig, LSTMConfig, WordConfig
from elmo.weights import published, store
from elmo.weights.allennlp_archive import read_allennlp
from elmo.weights.archives import unpacked
from elmo.weights.hdf5 import HDF5_MAGIC
from elmo.weights.manylangs import read_manylangs
from elmo.weights.model_parts import Lexicon, ModelParts
from elmo.weights.names import from_arrays
from elmo.weights.options import config_from_options, read_json
from elmo.weights.tf_checkpoint import find_prefix, is_bilm_variable, published_names, read_tf_checkpoint


def read_model(source: str | Path, weights: str | Path | None = None, *, late_head: bool = False) -> ModelParts:
    """A model's parts from a folder, a file, or the pair (options file, weights file).

    With `late_head`, a format that can leaves the softmax on disk until it is called for.
    """
    path = Path(source)
    if weights is not None:
        return published.read_pair(_existing(path), _existing(Path(weights)))
    kind = detect(_existing(path))
    return _read_store(path, late_head=late_head) if kind == "elmo" else _READERS[kind](path)


def detect(path: Path) -> str:
    """Which of the known formats lies at a path."""
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
        f"{path} is no model file that is known (it starts with {magic!r}).",
        "Known: a model folder, options.json + weights.hdf5, .zip, .th, .tar.gz, a TensorFlow checkpoint.",
    )


def _detect_folder(folder: Path) -> str:
    try:
        names = {p.name for p in folder.iterdir()}
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be read ({error.strerror or error}).") from error
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
    if sum(_may_hold_model(p) for p in folder.iterdir()) == 1:
        return "nested"
    raise WeightsError(
        f"{folder}: no model found in this folder ({', '.join(sorted(names)[:6]) or 'empty'}).",
        "Expected model.safetensors + config.json, or options.json + a .hdf5 file.",
    )


def _may_hold_model(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(("_", "."))


def _read_store(path: Path, *, late_head: bool = False) -> ModelParts:
    return store.read_store(path if path.is_dir() else path.parent, late_head=late_head)


def _read_hdf5(path: Path) -> ModelParts:
    if path.is_dir():
        return published.read_pair(*published.find_pair(path))
    if path.suffix == ".json":
        return published.read_pair(path, published.weights_beside(path))
    return published.read_pair(published.options_beside(path), path)


def _read_zip(path: Path) -> ModelParts:
    with unpacked(path) as folder:
        try:
            parts = read_model(folder)
        except WeightsError as error:  # the folder is gone by the time it is read about
            raise WeightsError(error.message.replace(str(folder), str(path)), error.hint) from error
    return dataclasses.replace(parts, source=str(path), about={**parts.about, "source": path.name})


def _read_nested(path: Path) -> ModelParts:
    inner = next(p for p in sorted(path.iterdir()) if _may_hold_model(p))
    kind = detect(inner)
    if kind == "nested":
        raise WeightsError(f"{path}: no model found in this folder, nor in {inner.name}.", "Name the model's folder.")
    return _READERS[kind](inner)


def _read_tensorflow(path: Path) -> ModelParts:
    folder = path if path.is_dir() else path.parent
    prefix = find_prefix(path)
    options = [p for p in sorted(folder.glob("*.json")) if "options" in p.name]
    if len(options) != 1:
        raise WeightsError(f"{folder}: {len(options)} options files beside the checkpoint; expected one.")
    arrays = published_names(read_tf_checkpoint(prefix, is_bilm_variable))
    num_words = len(arrays["embedding"]) if "embedding" in arrays else None
    config = config_from_options(read_json(options[0]), str(options[0]), num_words=num_words)
    if "softmax/b" in arrays:
        if "softmax/W" not in arrays and "embedding" in arrays:  # share_embedding_softmax: one table for both
            arrays["softmax/W"] = arrays["embedding"]
        config = dataclasses.replace(config, head=HeadConfig(vocab_size=len(arrays["softmax/b"])))
    return ModelParts(
        config=config,
        tensors=from_arrays(config, arrays, str(prefix)),
        vocab=published.vocab_beside(folder, config),
        about={"format": "tensorflow", "source": prefix.name},
        format="tensorflow",
        source=str(prefix),
    )


def _read_allennlp(path: Path) -> ModelParts:
    if path.is_dir():
        path = next(p for p in (path / "model.tar.gz", path / "best.th") if p.exists())
    found = read_allennlp(path)
    config = config_from_options(found.options, str(path))
    if found.forget_bias_included:
        config = dataclasses.replace(config, lstm=dataclasses.replace(config.lstm, forget_bias=0.0))
    return ModelParts(
        config=config,
        tensors=from_arrays(config, found.tensors, str(path)),
        mixes=tuple((tuple(map(float, weights)), float(gamma)) for weights, gamma in found.mixes),
        about={"format": "allennlp", "source": path.name},
        format="allennlp",
        source=str(path),
    )


def _read_manylangs(path: Path) -> ModelParts:
    found = read_manylangs(path)
    encoder, tokens, arrays = found.config["encoder"], found.config["token_embedder"], found.tensors
    config = BiLMConfig(
        chars=None
        if "char_embed" not in arrays
        else CharConfig(
            num_chars=len(arrays["char_embed"]),
            char_dim=arrays["char_embed"].shape[1],
            max_chars=tokens.get("max_characters_per_token", 50),
            filters=tuple((width, count) for width, count in tokens["filters"]),
            activation=tokens.get("activation", "relu"),
            num_highways=tokens.get("n_highway", 0),
        ),
        words=None
        if "word_embed" not in arrays
        else WordConfig(num_words=len(arrays["word_embed"]), word_dim=arrays["word_embed"].shape[1]),
        lstm=LSTMConfig(
            num_layers=encoder["n_layers"],
            cell_dim=encoder["dim"],
            proj_dim=encoder["projection_dim"],
            cell_clip=encoder.get("cell_clip"),
            proj_clip=encoder.get("proj_clip"),
            skip=True,
            forget_bias=0.0 if found.forget_bias_included else 1.0,
        ),
        project_tokens=True,
    )
    return ModelParts(
        config=config,
        tensors=from_arrays(config, arrays, str(path)),
        lexicon=Lexicon(chars=found.char_lexicon, words=found.word_lexicon),
        about={"format": "manylangs", "source": path.name},
        format="manylangs",
        source=str(path),
    )


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


_READERS: dict[str, Callable[[Path], ModelParts]] = {
    "elmo": _read_store,
    "hdf5": _read_hdf5,
    "zip": _read_zip,
    "nested": _read_nested,
    "tensorflow": _read_tensorflow,
    "allennlp": _read_allennlp,
    "manylangs": _read_manylangs,
}
