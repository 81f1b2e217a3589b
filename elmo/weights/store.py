"""Reads and writes the package's own model folder: safetensors, config.json, words, README.md and their sha256.

    model/
      model.safetensors   tensors under our names: float32, float16, or int8 with one scale per output (`quantize`)
      head.safetensors    the same for the softmax, which embedding does not need to read; or its matrix in 4 to 6 bits
                          (`low_bits`), in folders of version 3
      config.json         format version, the model's shape, the storage type of its numbers, its origin
      vocab.txt           the words of the softmax or the word table, one per line; a large list is vocab.txt.xz
      word_counts.txt     how often the training text has each of these words, one per line; a large list ends in .xz
      lexicon.json        symbol -> number (models of the ELMoForManyLangs family)
      README.md           the model card; it may be edited, because people fill it in and the hub's page changes it
      manifest.json       sha256 and size of each file above, written last

Folders of version 1 have the softmax in model.safetensors. The safetensors format has no checksums: the manifest is
what detects a damaged file.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elmo.errors import ConfigError, WeightsError
from elmo.files import atomic_folder, parse_json, read_json, sha256_file
from elmo.model.config import BiLMConfig
from elmo.weights import low_bits, quantize
from elmo.weights.checkpoint_folder import save_weights
from elmo.weights.memory_bound import claim, memory_bound
from elmo.weights.model_parts import Lexicon, ModelParts
from elmo.weights.word_list import read_counts, read_model_words, write_words

FORMAT, VERSION, VERSION_WITH_LOW_BITS = "elmo-lm", 2, 3
VERSIONS = (1, VERSION, VERSION_WITH_LOW_BITS)
TENSORS, HEAD, CONFIG, VOCAB, WORD_COUNTS, LEXICON, CARD, MANIFEST = (
    "model.safetensors",
    "head.safetensors",
    "config.json",
    "vocab.txt",
    "word_counts.txt",
    "lexicon.json",
    "README.md",
    "manifest.json",
)
MATRIX = "head.weight"
DTYPES = {"float32": torch.float32, "float16": torch.float16}
STORAGES = (*DTYPES, "int8")
COUNTS_VERSION = 1  # of the file of word counts, in config.json; folders without it are read as before
COMPRESS_WORDS_FROM = 1 << 18  # bytes; longer word lists are compressed
_LEXICON_FACTOR = 10  # bytes of memory per byte of a lexicon whose words are short


def save_store(
    folder: Path,
    parts: ModelParts,
    *,
    storage: str = "float32",
    head_bits: int | None = None,  # 4, 5, 6: bits per weight of the softmax matrix; None: as `storage` says
    overwrite: bool = False,
) -> None:
    """Writes the folder atomically. float16 halves its size, int8 quarters it, and both round the weights."""
    check_storage(storage)
    if head_bits is not None:
        low_bits.check_head(parts.config.head, head_bits)
    tensors = parts.tensors | (parts.read_head() if parts.read_head is not None else {})
    head = {name: tensor for name, tensor in tensors.items() if name.startswith("head.")}
    body = {name: tensor for name, tensor in tensors.items() if name not in head}
    with atomic_folder(folder, overwrite=overwrite) as partial:
        _write_tensors(partial / TENSORS, body, storage)
        if head_bits is not None:
            matrix = low_bits.pack_matrix(MATRIX, head.pop(MATRIX), head_bits)
            save_weights(partial / HEAD, {**matrix, **{name: tensor.float() for name, tensor in head.items()}})
        elif head:
            _write_tensors(partial / HEAD, head, storage)
        version = VERSION if head_bits is None else VERSION_WITH_LOW_BITS
        config = {"format": FORMAT, "version": version, "storage": storage, "model": parts.config.to_dict()}
        if head_bits is not None:
            config["head_bits"] = head_bits
        config["about"] = parts.about
        if parts.mixes:
            config["mixes"] = [{"weights": list(weights), "gamma": gamma} for weights, gamma in parts.mixes]
        if parts.vocab is not None and parts.word_counts is not None:
            config["word_counts"] = COUNTS_VERSION
            _write_lines(partial, WORD_COUNTS, [str(count) for count in parts.word_counts.tolist()])
        _write_json(partial / CONFIG, config)
        if parts.vocab is not None:
            _write_lines(partial, VOCAB, parts.vocab)
        if parts.lexicon is not None:
            _write_json(partial / LEXICON, dataclasses.asdict(parts.lexicon))
        (partial / CARD).write_text(parts.card or _default_card(parts), encoding="utf-8", newline="\n")
        files = {f.name: {"sha256": sha256_file(f), "bytes": f.stat().st_size} for f in sorted(partial.iterdir())}
        _write_json(partial / MANIFEST, {"format": FORMAT, "files": files})


def check_storage(storage: str) -> None:
    """Raises ConfigError for an unknown storage type."""
    if storage not in STORAGES:
        raise ConfigError(f"storage is {storage!r}; expected one of {', '.join(STORAGES)}.")


def read_store(path: Path, *, lazy_head: bool = False) -> ModelParts:
    """Reads and verifies a folder written by `save_store`, or the folder of one of its files.

    With `lazy_head`, the softmax is read when it is first needed.
    """
    folder = path.parent if path.is_file() else path
    files = listed_files(folder)
    for name in files:
        if name != HEAD:  # checked when it is read
            check_file(folder, name)
    settings = read_json(folder / CONFIG, error=WeightsError)
    if settings.get("format") != FORMAT or settings.get("version") not in VERSIONS:
        raise WeightsError(
            f"{folder / CONFIG}: format {settings.get('format')!r} version {settings.get('version')!r}; "
            f"expected {FORMAT!r} version 1 to {VERSIONS[-1]}.",
            "A newer version of this package may be needed.",
        )
    storage = settings.get("storage", "")
    if storage not in ("", *STORAGES):
        raise WeightsError(f"{folder / CONFIG}: storage {storage!r}; expected one of {', '.join(STORAGES)}.")
    try:
        config = BiLMConfig.from_dict(settings.get("model", {}))
        mixes = tuple((tuple(m["weights"]), float(m["gamma"])) for m in settings.get("mixes", ()))
        about = dict(settings.get("about", {}))
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{folder / CONFIG}: {error}") from error
    has_own_softmax = config.head is not None and config.head.kind == "softmax" and not config.head.tied
    lazy = lazy_head and has_own_softmax and HEAD in files
    head_bits = _read_head_bits(settings, folder, has_own_softmax and HEAD in files)
    read_head = functools.partial(_read_head, folder, storage, head_bits)
    tensors = _read_tensors(folder / TENSORS, storage)
    vocab = _read_vocab(folder, config)
    return ModelParts(
        config=config,
        tensors=tensors if lazy or HEAD not in files else tensors | read_head(),
        vocab=vocab,
        word_counts=_read_counts(folder, settings.get("word_counts"), vocab),
        lexicon=_read_lexicon(folder / LEXICON),
        mixes=mixes,
        card=(folder / CARD).read_text(encoding="utf-8", errors="replace") if (folder / CARD).exists() else "",
        about=about,
        format="elmo",
        source=str(folder),
        storage=storage,
        head_bits=head_bits,
        read_head=read_head if lazy else None,
    )


def listed_files(folder: Path) -> dict[str, Any]:
    """The table in the manifest: file name -> {"sha256": ..., "bytes": ...}."""
    files = read_json(folder / MANIFEST, error=WeightsError).get("files")
    if not isinstance(files, dict) or not {TENSORS, CONFIG} <= set(files):
        raise WeightsError(f"{folder / MANIFEST}: does not list {TENSORS} and {CONFIG}.")
    for name, expected in files.items():
        if Path(name).name != name or not isinstance(expected, dict):
            raise WeightsError(f"{folder / MANIFEST}: {name!r} is not a file of this folder.")
    return files


def check_file(folder: Path, name: str) -> None:
    """Raises WeightsError unless a listed file exists with its size and sha256; the card may have been edited."""
    path, expected = folder / name, listed_files(folder)[name]
    if not path.is_file():
        raise WeightsError(f"{path} is missing.", "The folder is incomplete: copy or download it again.")
    if name == CARD:
        return
    if path.stat().st_size != expected.get("bytes") or sha256_file(path) != expected.get("sha256"):
        raise WeightsError(
            f"{path} is not the file its manifest describes.", "It is damaged or edited: copy or download it again."
        )


def _write_lines(folder: Path, name: str, lines: Sequence[str]) -> None:
    is_large = sum(len(line) + 1 for line in lines) >= COMPRESS_WORDS_FROM
    write_words(folder / (f"{name}.xz" if is_large else name), lines)


def _write_tensors(path: Path, tensors: dict[str, Tensor], storage: str) -> None:
    stored = quantize.pack(tensors) if storage == "int8" else {n: t.to(DTYPES[storage]) for n, t in tensors.items()}
    for name, tensor in stored.items():
        if tensor.dtype == torch.float16 and bool((tensor.isinf() & tensors[name].isfinite()).any()):
            raise ConfigError(f"{name!r} has values too large for float16.", "Store the model as float32.")
    save_weights(path, stored)


def _read_safetensors(path: Path, expansion: int) -> dict[str, Tensor]:
    """The tensors as they are stored; the caller unpacks them to at most `expansion` bytes per byte of the file."""
    with memory_bound(path):
        claim(expansion * (path.stat().st_size if path.is_file() else 0), path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise WeightsError(f"{path}: not readable as safetensors ({str(error)[:200]}).") from error


def _read_tensors(path: Path, storage: str) -> dict[str, Tensor]:
    # int8 becomes float32 beside it, 16 bits become 32
    tensors = _read_safetensors(path, {"int8": 5, "float32": 1}.get(storage, 2))
    allowed = [*DTYPES.values(), *([torch.int8] if storage == "int8" else [])]
    for name, tensor in tensors.items():
        if tensor.dtype not in allowed:
            raise WeightsError(f"{path}: {name!r} holds {tensor.dtype}; expected {storage or ' or '.join(DTYPES)}.")
    return quantize.unpack(tensors, str(path)) if storage == "int8" else tensors


def _read_head_bits(settings: dict[str, Any], folder: Path, has_matrix: bool) -> int | None:
    """The bits per weight of the stored softmax matrix; None if it is stored like the other matrices."""
    bits = settings.get("head_bits")
    if bits is None:
        return None
    if settings.get("version") != VERSION_WITH_LOW_BITS or bits not in low_bits.BITS or not has_matrix:
        choices = ", ".join(map(str, low_bits.BITS))
        raise WeightsError(
            f"{folder / CONFIG}: head_bits is {str(bits)[:80]}; expected one of {choices}, in a folder of version "
            f"{VERSION_WITH_LOW_BITS} with a softmax.",
            "The folder is damaged: copy or download it again.",
        )
    return int(bits)


def _read_head(folder: Path, storage: str, head_bits: int | None) -> dict[str, Tensor]:
    check_file(folder, HEAD)
    if head_bits is None:
        tensors = _read_tensors(folder / HEAD, storage)
    else:
        stored = _read_safetensors(folder / HEAD, 10)  # 4 bits become 32 beside them
        matrix = low_bits.unpack_matrix(MATRIX, stored, head_bits, str(folder / HEAD))
        tensors = {name: tensor for name, tensor in stored.items() if not name.startswith(f"{MATRIX}.")}
        tensors[MATRIX] = matrix
    unexpected = [name for name in tensors if not name.startswith("head.")]
    if unexpected:
        raise WeightsError(f"{folder / HEAD}: {unexpected[0]!r} is not a tensor of a softmax.", "The file is damaged.")
    return tensors


def _read_vocab(folder: Path, config: BiLMConfig) -> tuple[str, ...] | None:
    path = next((p for p in (folder / VOCAB, folder / f"{VOCAB}.xz") if p.exists()), None)
    return None if path is None else read_model_words(path, config)


def _read_counts(folder: Path, version: Any, vocab: tuple[str, ...] | None) -> np.ndarray | None:
    if version is None or vocab is None:
        return None
    if version != COUNTS_VERSION:
        raise WeightsError(
            f"{folder / CONFIG}: word counts of version {str(version)[:40]}; expected {COUNTS_VERSION}.",
            "A newer version of this package may be needed.",
        )
    path = next((p for p in (folder / WORD_COUNTS, folder / f"{WORD_COUNTS}.xz") if p.exists()), None)
    if path is None:
        raise WeightsError(
            f"{folder / WORD_COUNTS} is missing.", "The folder is incomplete: copy or download it again."
        )
    return read_counts(path, len(vocab))


def _read_lexicon(path: Path) -> Lexicon | None:
    if not path.exists():
        return None
    with memory_bound(path):
        claim(_LEXICON_FACTOR * path.stat().st_size, path)
    value = parse_json(path.read_bytes(), str(path), error=WeightsError)
    tables = [value.get("chars"), value.get("words")]
    for table in tables:
        if table is not None and not (isinstance(table, dict) and all(type(n) is int for n in table.values())):
            raise WeightsError(f"{path}: expected tables from symbol to number under 'chars' and 'words'.")
    max_chars = value.get("max_chars")
    if max_chars is not None and (type(max_chars) is not int or max_chars < 3):
        raise WeightsError(f"{path}: max_chars is {str(max_chars)[:80]}; expected an integer of at least 3.")
    return Lexicon(chars=tables[0], words=tables[1], max_chars=max_chars)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def _default_card(parts: ModelParts) -> str:
    lstm = parts.config.lstm
    sizes = f"{lstm.num_layers} layers, {lstm.cell_dim} cells, projection {lstm.proj_dim}"
    return (
        "# A biLM\n\n"
        f"- {sizes}; vectors of {parts.config.dim}.\n"
        f"- From: {parts.about.get('source', parts.source) or 'unknown'}\n"
        "- Trained on, licence, intended use: not recorded. Fill this in before you pass the model on.\n"
    )
