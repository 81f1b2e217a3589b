"""Reads and writes the published layout: options.json + weights.hdf5, with optional vocabulary and softmax files."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from elmo.errors import ConfigError, WeightsError
from elmo.files import atomic_folder, read_json
from elmo.model.config import BiLMConfig, HeadConfig
from elmo.weights.hdf5 import read_hdf5, read_shapes, write_hdf5
from elmo.weights.model_parts import ModelParts
from elmo.weights.names import refuse_extra
from elmo.weights.options import config_from_options, options_from_config
from elmo.weights.word_list import read_model_words, write_words

log = logging.getLogger(__name__)

OPTIONS, WEIGHTS, SOFTMAX, VOCAB = "options.json", "weights.hdf5", "softmax_weights.hdf5", "vocab.txt"


def read_published(path: Path, weights_path: Path | None = None) -> ModelParts:
    """A published model from its folder, its options file or its weights file.

    With `weights_path`, `path` is the options file. A vocabulary and a softmax file in the same folder are included.
    """
    if weights_path is not None:
        return _read_pair(path, weights_path)
    if path.is_dir():
        return _read_pair(*_find_pair(path))
    if path.suffix == ".json":
        return _read_pair(path, _find_weights(path))
    return _read_pair(find_options(path), path)


def write_published(folder: Path, parts: ModelParts, *, overwrite: bool = False) -> None:
    """Writes options.json, weights.hdf5 and, if the model has them, vocab.txt and softmax_weights.hdf5."""
    options = options_from_config(parts.config)
    if parts.lexicon is not None:
        raise ConfigError(
            "The published layout has no place for a lexicon: its readers number bytes, this model its own characters.",
            "Store it in this package's own format.",
        )
    if parts.config.head and parts.config.head.kind != "softmax":
        raise ConfigError(
            "The published layout has no place for an adaptive softmax.",
            "`elmo convert --to hdf5 --without-head` writes the model without its softmax.",
        )
    with atomic_folder(folder, overwrite=overwrite) as partial:
        (partial / OPTIONS).write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        write_hdf5(partial / WEIGHTS, parts.config, parts.tensors)
        if parts.config.head:
            write_hdf5(partial / SOFTMAX, parts.config, parts.tensors, head=True)
        if parts.vocab is not None:
            write_words(partial / VOCAB, parts.vocab)


def read_vocab(folder: Path, config: BiLMConfig) -> tuple[str, ...] | None:
    """The word list in a folder, or None; its length must match the model's word tables."""
    names = (folder / VOCAB, folder / f"{VOCAB}.gz")
    path = next((p for p in names if p.exists()), None) or _only_match(folder, "vocab*.txt*")
    return None if path is None else read_model_words(path, config)


def find_options(weights_path: Path) -> Path:
    """The options file for a weights file: the one with the matching name, or the only one in the folder."""
    stem = weights_path.stem.replace("weights", "options")
    named = [weights_path.with_name(f"{stem}.json"), weights_path.with_name(OPTIONS)]
    for path in named:
        if path.exists():
            return path
    others = [p for p in sorted(weights_path.parent.glob("*.json")) if "options" in p.name]
    if len(others) != 1:
        raise WeightsError(f"{weights_path}: no options file next to it (looked for {named[0].name} and {OPTIONS}).")
    return others[0]


def _find_weights(options_path: Path) -> Path:
    """The weights file for an options file: the one with the matching name, or the only one in the folder."""
    named = options_path.with_name(options_path.stem.replace("options", "weights") + ".hdf5")
    return named if named.exists() else _find_pair(options_path.parent)[1]


def _find_pair(folder: Path) -> tuple[Path, Path]:
    """The one options file and the one weights file of a folder."""
    weights = [p for p in sorted(folder.glob("*.hdf5")) + sorted(folder.glob("*.h5")) if "softmax" not in p.name]
    options = [p for p in sorted(folder.glob("*.json")) if "options" in p.name]
    for kind, files in (("weights (.hdf5)", weights), ("options (.json)", options)):
        if len(files) != 1:
            names = ", ".join(p.name for p in files[:5]) or "none"
            raise WeightsError(f"{folder}: {len(files)} {kind} files ({names}); expected one.", "Name the two files.")
    return options[0], weights[0]


def _read_pair(options_path: Path, weights_path: Path) -> ModelParts:
    options, shapes = read_json(options_path, error=WeightsError), read_shapes(weights_path)
    word_shape = shapes.get("embedding", ()) if "char_cnn" not in options else ()
    num_words = word_shape[0] if len(word_shape) == 2 else None
    config = config_from_options(options, str(options_path), num_words=num_words, names=shapes)
    tensors = read_hdf5(weights_path, config)
    has_softmax = any(name.startswith("softmax/") for name in shapes)
    softmax_path = weights_path if has_softmax else _only_match(weights_path.parent, "*softmax*.hdf5")
    if softmax_path:
        if not has_softmax:
            refuse_extra(str(softmax_path), [n for n in read_shapes(softmax_path) if not n.startswith("softmax/")])
        config, head = _read_head(softmax_path, config, tensors)
        tensors |= head
    return ModelParts(
        config=config,
        tensors=tensors,
        vocab=read_vocab(weights_path.parent, config),
        about={"format": "hdf5", "source": weights_path.name},
        format="hdf5",
        source=str(weights_path),
    )


def _read_head(path: Path, config: BiLMConfig, tensors: Mapping[str, Tensor]) -> tuple[BiLMConfig, dict[str, Tensor]]:
    """The config with a head, and the head's tensors. A softmax that shares the word table gets a copy of the table."""
    shapes = read_shapes(path)
    if len(shapes.get("softmax/b", ())) != 1:
        raise WeightsError(f"{path} has no 'softmax/b'.", "Move it away if it is not this model's softmax.")
    vocab_size = shapes["softmax/b"][0]
    tied = "softmax/W" not in shapes and config.words is not None and config.words.num_words == vocab_size
    stored_config = dataclasses.replace(config, head=HeadConfig(vocab_size=vocab_size, tied=tied))
    head = read_hdf5(path, stored_config, head=True)
    if tied:
        head["head.weight"] = tensors["token_encoder.words"].clone()
    return dataclasses.replace(config, head=HeadConfig(vocab_size=vocab_size)), head


def _only_match(folder: Path, pattern: str) -> Path | None:
    matches = sorted(folder.glob(pattern))
    if len(matches) > 1:
        log.warning(
            "%s: %d files %s, none of which is read: keep the one that belongs to the model.",
            folder,
            len(matches),
            pattern,
        )
    return matches[0] if len(matches) == 1 else None
