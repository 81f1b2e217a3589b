"""Converts a model of any readable format to one of the two that are written, and reports what is not exact."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError, OutputError
from elmo.files import sha256_file
from elmo.weights.formats import read_model
from elmo.weights.lookup import find_model
from elmo.weights.model_parts import ModelParts, check_finite, check_tensors
from elmo.weights.published import write_published
from elmo.weights.store import check_storage, save_store


def convert_model(
    model: str | Path,
    out: Path,
    *,
    weights: str | Path | None = None,
    target: str = "elmo",  # elmo, hdf5
    storage: str = "float32",  # float32, float16, int8
    head_bits: int | None = None,  # 4, 5, 6: bits per weight of the softmax matrix; None: as `storage` says
    without_head: bool = False,
    card: Path | None = None,  # Markdown file to include as the model card
    name: str = "",  # new name of the model; empty: its old name
    overwrite: bool = False,
    allow_nonfinite: bool = False,
) -> dict[str, Any]:
    """Writes the folder `out` and returns a report: its files, and every way in which the numbers differ."""
    check_storage(storage)
    _check_out(out, model, weights, overwrite)
    if target == "hdf5" and storage != "float32":
        raise ConfigError("The published layout is float32.", "Leave --storage out, or convert to the elmo format.")
    if target == "hdf5" and (card or name):
        raise ConfigError("The published layout has no place for a card or a name.", "Leave --card and --name out.")
    if target == "hdf5" and head_bits is not None:
        raise ConfigError("The published layout has no softmax in few bits.", "Leave --head-bits out.")
    if head_bits is not None and without_head:
        raise ConfigError("--head-bits and --without-head exclude each other.", "Leave one of them out.")
    text = _read_card(card) if card is not None else ""
    parts = find_model(model) if weights is None else read_model(model, weights)
    check_tensors(parts)
    check_finite(parts.tensors, parts.source, allow_nonfinite=allow_nonfinite)
    if without_head:
        parts = drop_head(parts)
    about = {**parts.about, "name": name} if name else parts.about
    parts = dataclasses.replace(parts, card=text or parts.card, about=about)
    if target == "hdf5":
        write_published(out, parts, overwrite=overwrite)
    else:
        save_store(out, parts, storage=storage, head_bits=head_bits, overwrite=overwrite)
    files = [p for p in sorted(out.iterdir()) if p.is_file()]
    return {
        "from_format": parts.format,
        "to_format": target,
        "files": [{"name": p.name, "bytes": p.stat().st_size, "sha256": sha256_file(p)} for p in files],
        "not_exact": _differences(parts, target, storage, head_bits),
    }


def drop_head(parts: ModelParts) -> ModelParts:
    """The model without its softmax, and without its vocabulary unless the model reads words."""
    tensors = {name: tensor for name, tensor in parts.tensors.items() if not name.startswith("head.")}
    vocab, word_counts = (parts.vocab, parts.word_counts) if parts.config.words else (None, None)
    config = dataclasses.replace(parts.config, head=None)
    return dataclasses.replace(parts, config=config, tensors=tensors, vocab=vocab, word_counts=word_counts)


def _differences(parts: ModelParts, target: str, storage: str, head_bits: int | None) -> list[str]:
    differences = []
    if storage == "float16" and any(t.dtype.itemsize > 2 for t in parts.tensors.values()):
        differences.append("weights are rounded to float16")
    if storage == "int8" and parts.storage != "int8":
        differences.append("matrices are rounded to int8, convolutions to float16")
    if head_bits is not None and parts.head_bits != head_bits:
        differences.append(f"the softmax matrix is rounded to {head_bits} bits per weight")
    if head_bits is None and parts.head_bits is not None and parts.config.head is not None and storage == "int8":
        differences.append("the softmax matrix is rounded to int8")
    if target == "hdf5" and parts.config.lstm.forget_bias != 1.0:
        differences.append(
            "the forget bias is subtracted from the LSTM biases, as this layout requires; their last bit may differ"
        )
    lstm = parts.config.lstm
    if target == "hdf5" and lstm.projects and lstm.cell_dim == lstm.proj_dim:
        differences.append(
            "there is an LSTM projection between equal sizes: bilm-tf and simple_elmo ignore it, AllenNLP reads it"
        )
    if target == "hdf5" and parts.config.projects_tokens and parts.config.token_dim == lstm.proj_dim:
        differences.append(
            "there is a token projection between equal sizes: bilm-tf and simple_elmo ignore it, AllenNLP reads it"
        )
    if target == "hdf5" and parts.mixes:
        differences.append("the mix weights stored with the model have no place in this layout and are left out")
    if target == "hdf5" and parts.word_counts is not None:
        differences.append(
            "the word counts have no place in this layout and are left out; substitutes are ranked with Zipf's law"
        )
    if target == "hdf5" and parts.tokenizer not in (None, "default"):
        differences.append(
            f"the tokenizer {parts.tokenizer!r} has no place in this layout and is left out: load the model with "
            f"tokenizer={parts.tokenizer!r}"
        )
    return differences


def _read_card(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as the model card ({error}).", "Give a Markdown file.") from error


def _check_out(out: Path, model: str | Path, weights: str | Path | None, overwrite: bool) -> None:
    """Checks, before minutes of reading, that OUT is free and that replacing it would not destroy the input."""
    if out.exists() and not overwrite:
        raise OutputError(f"{out} exists.", "Choose another name or pass --overwrite.")
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file; a model is written as a folder.", "Choose another name.")
    sources = [Path(source) for source in (model, weights) if source is not None]
    for source in sources:
        if out.exists() and source.exists() and (out.resolve() in (source.resolve(), *source.resolve().parents)):
            raise OutputError(f"{out} holds the model to be converted.", "Choose another name.")
