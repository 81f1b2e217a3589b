"""options.json + weights.hdf5, with the vocabulary and the softmax that may lie beside them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from elmo.errors import ConfigError, WeightsError
from elmo.files import atomic_folder
from elmo.model.config import BiLMConfig, HeadConfig
from elmo.weights.hdf5 import read_hdf5, read_shapes, write_hdf5
from elmo.weights.model_parts import ModelParts
from elmo.weights.options import config_from_options, options_from_config, read_json
from elmo.weights.word_list import read_words, write_words

OPTIONS, WEIGHTS, SOFTMAX, VOCAB = "options.json", "weights.hdf5", "softmax_weights.hdf5", "vocab.txt"


def read_pair(options_path: Path, weights_path: Path) -> ModelParts:
    """A published model from its two files; a vocabulary and a softmax file in the same folder come along."""
    options, shapes = read_json(options_path), read_shapes(weights_path)
    words = shapes.get("embedding", ()) if "char_cnn" not in options else ()
    config = config_from_options(options, str(options_path), num_words=words[0] if len(words) == 2 else None)
    tensors = read_hdf5(weights_path, config)
    softmax = weights_path if "softmax/b" in shapes else _beside(weights_path.parent, "*softmax*.hdf5")
    if softmax:
        config, head = _read_head(softmax, config, tensors)
        tensors |= head
    return ModelParts(
        config=config,
        tensors=tensors,
        vocab=vocab_beside(weights_path.parent, config),
        about={"format": "hdf5", "source": weights_path.name},
        format="hdf5",
        source=str(weights_path),
    )


def vocab_beside(folder: Path, config: BiLMConfig) -> tuple[str, ...] | None:
    """The word list of a folder, where there is one, after its length was found to fit the model's word tables."""
    path = next((p for p in (folder / VOCAB, folder / f"{VOCAB}.gz") if p.exists()), _beside(folder, "vocab*.txt*"))
    if path is None:
        return None
    words = read_words(path)
    size = config.head.vocab_size if config.head else config.words.num_words if config.words else len(words)
    if len(words) != size:
        raise WeightsError(
            f"{path} holds {len(words):,} words; the model has rows for {size:,}.",
            "It is another model's: put the one it was trained with there, or take it away.",
        )
    return words


def find_pair(folder: Path) -> tuple[Path, Path]:
    """The one options file and the one weights file of a folder."""
    weights = [p for p in sorted(folder.glob("*.hdf5")) + sorted(folder.glob("*.h5")) if "softmax" not in p.name]
    options = [p for p in sorted(folder.glob("*.json")) if "options" in p.name]
    for kind, files in (("weights (.hdf5)", weights), ("options (.json)", options)):
        if len(files) != 1:
            seen = ", ".join(p.name for p in files[:5]) or "none"
            raise WeightsError(f"{folder}: {len(files)} {kind} files ({seen}); expected one.", "Name the two files.")
    return options[0], weights[0]


def options_beside(weights: Path) -> Path:
    """The options file that belongs to a weights file, by its name or as the only one there."""
    named = [weights.with_name(weights.stem.replace("weights", "options") + ".json"), weights.with_name(OPTIONS)]
    for path in named:
        if path.exists():
            return path
    others = [p for p in sorted(weights.parent.glob("*.json")) if "options" in p.name]
    if len(others) != 1:
        raise WeightsError(f"{weights}: no options file beside it (looked for {named[0].name} and {OPTIONS}).")
    return others[0]


def weights_beside(options: Path) -> Path:
    """The weights file that belongs to an options file, by its name or as the only one there."""
    named = options.with_name(options.stem.replace("options", "weights") + ".hdf5")
    return named if named.exists() else find_pair(options.parent)[1]


def write_pair(folder: Path, parts: ModelParts, *, overwrite: bool = False) -> None:
    """Writes options.json, weights.hdf5 and, where the model has them, vocab.txt and softmax_weights.hdf5."""
    options = options_from_config(parts.config)
    if parts.config.head and parts.config.head.kind != "softmax":
        raise ConfigError("The published layout has no place for an adaptive softmax.", "Convert without the head.")
    with atomic_folder(folder, overwrite=overwrite) as partial:
        (partial / OPTIONS).write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        write_hdf5(partial / WEIGHTS, parts.config, parts.tensors)
        if parts.config.head:
            write_hdf5(partial / SOFTMAX, parts.config, parts.tensors, head=True)
        if parts.vocab is not None:
            write_words(partial / VOCAB, parts.vocab)


def _read_head(path: Path, config: BiLMConfig, tensors: Mapping[str, Tensor]) -> tuple[BiLMConfig, dict[str, Tensor]]:
    """The config with a head, and the head's tensors. A softmax that reuses the word table becomes one of its own."""
    shapes = read_shapes(path)
    if len(shapes.get("softmax/b", ())) != 1:
        raise WeightsError(f"{path} has no 'softmax/b'.", "Move it away if it is not this model's softmax.")
    vocab_size = shapes["softmax/b"][0]
    tied = "softmax/W" not in shapes and config.words is not None and config.words.num_words == vocab_size
    head = HeadConfig(vocab_size=vocab_size, tied=tied)
    read = read_hdf5(path, dataclasses.replace(config, head=head), head=True)
    if tied:
        read["head.weight"] = tensors["token_encoder.words"].clone()
    return dataclasses.replace(config, head=HeadConfig(vocab_size=vocab_size)), read


def _beside(folder: Path, pattern: str) -> Path | None:
    found = sorted(folder.glob(pattern))
    return found[0] if len(found) == 1 else None
