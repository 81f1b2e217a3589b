"""The package's own model folder: model.safetensors, config.json, vocab.txt, README.md and their sha256.

    model/
      model.safetensors   tensors under our names, float32 or float16
      config.json         format version, the model's shape, where it came from
      vocab.txt           the softmax's words, by line (where the model predicts or reads words)
      lexicon.json        symbols by number (models of the ELMoForManyLangs family)
      README.md           the model card
      manifest.json       sha256 and size of each file above, written last

A flipped byte in safetensors loads silently; the manifest is what makes it an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import ConfigError, WeightsError
from elmo.files import atomic_folder, sha256_file
from elmo.model.config import BiLMConfig
from elmo.weights.options import parse_json, read_json
from elmo.weights.parts import Lexicon, ModelParts
from elmo.weights.words import read_words, write_words

FORMAT, VERSION = "elmo-lm", 1
TENSORS, CONFIG, VOCAB, LEXICON, CARD, MANIFEST = (
    "model.safetensors",
    "config.json",
    "vocab.txt",
    "lexicon.json",
    "README.md",
    "manifest.json",
)
DTYPES = {"float32": torch.float32, "float16": torch.float16}


def save_store(folder: Path, parts: ModelParts, *, dtype: str = "float32", overwrite: bool = False) -> None:
    """Writes the folder whole or not at all. float16 halves it and rounds the weights."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; a model is stored as {' or '.join(DTYPES)}.")
    with atomic_folder(folder, overwrite=overwrite) as partial:
        _write_tensors(partial / TENSORS, {name: t.to(DTYPES[dtype]) for name, t in parts.tensors.items()}, parts)
        config = {"format": FORMAT, "version": VERSION, "model": parts.config.to_dict(), "about": parts.about}
        if parts.mixes:
            config["mixes"] = [{"weights": list(weights), "gamma": gamma} for weights, gamma in parts.mixes]
        _write_json(partial / CONFIG, config)
        if parts.vocab is not None:
            write_words(partial / VOCAB, parts.vocab)
        if parts.lexicon is not None:
            _write_json(partial / LEXICON, {"chars": parts.lexicon.chars, "words": parts.lexicon.words})
        (partial / CARD).write_text(parts.card or _plain_card(parts), encoding="utf-8", newline="\n")
        files = {f.name: {"sha256": sha256_file(f), "bytes": f.stat().st_size} for f in sorted(partial.iterdir())}
        _write_json(partial / MANIFEST, {"format": FORMAT, "files": files})


def read_store(folder: Path) -> ModelParts:
    """Reads and verifies a folder written by `save_store`."""
    check_manifest(folder)
    settings = read_json(folder / CONFIG)
    if settings.get("format") != FORMAT or settings.get("version") != VERSION:
        raise WeightsError(
            f"{folder / CONFIG}: format {settings.get('format')!r} version {settings.get('version')!r}; "
            f"expected {FORMAT!r} version {VERSION}.",
            "A newer version of this package may be needed.",
        )
    try:
        config = BiLMConfig.from_dict(settings.get("model", {}))
        mixes = tuple((tuple(m["weights"]), float(m["gamma"])) for m in settings.get("mixes", ()))
        about = dict(settings.get("about", {}))
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{folder / CONFIG}: {error}") from error
    return ModelParts(
        config=config,
        tensors=_read_tensors(folder / TENSORS),
        vocab=_read_vocab(folder / VOCAB),
        lexicon=_read_lexicon(folder / LEXICON),
        mixes=mixes,
        card=(folder / CARD).read_text(encoding="utf-8", errors="replace") if (folder / CARD).exists() else "",
        about=about,
        format="elmo",
        source=str(folder),
    )


def check_manifest(folder: Path) -> None:
    """Every listed file is there with its size and sha256, or an error that names the first that is not."""
    files = read_json(folder / MANIFEST).get("files")
    if not isinstance(files, dict) or not {TENSORS, CONFIG} <= set(files):
        raise WeightsError(f"{folder / MANIFEST}: does not list {TENSORS} and {CONFIG}.")
    for name, expected in files.items():
        path = folder / name
        if Path(name).name != name or not isinstance(expected, dict):
            raise WeightsError(f"{folder / MANIFEST}: {name!r} is no file of this folder.")
        if not path.is_file():
            raise WeightsError(f"{path} is missing.", "The folder is incomplete: copy or download it again.")
        if path.stat().st_size != expected.get("bytes") or sha256_file(path) != expected.get("sha256"):
            raise WeightsError(f"{path} is not the file its manifest describes.", "Damaged or edited: get it again.")


def _write_tensors(path: Path, tensors: dict[str, Tensor], parts: ModelParts) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float16 and bool((tensor.isinf() & parts.tensors[name].isfinite()).any()):
            raise ConfigError(f"{name!r} has values too large for float16.", "Store the model as float32.")
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # a full disk, in a voice of its own
        raise OSError(str(error)) from error
    path.chmod(path.parent.stat().st_mode & 0o666)  # it comes private; a model is for whoever may enter its folder


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise WeightsError(f"{path}: not readable as safetensors ({str(error)[:200]}).") from error
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES.values():
            raise WeightsError(f"{path}: {name!r} holds {tensor.dtype}; expected {' or '.join(DTYPES)}.")
    return tensors


def _read_vocab(path: Path) -> tuple[str, ...] | None:
    return read_words(path) if path.exists() else None


def _read_lexicon(path: Path) -> Lexicon | None:
    if not path.exists():
        return None
    value = parse_json(path.read_bytes(), str(path))
    tables = [value.get("chars"), value.get("words")]
    for table in tables:
        if table is not None and not (isinstance(table, dict) and all(type(n) is int for n in table.values())):
            raise WeightsError(f"{path}: expected tables of symbol and number under 'chars' and 'words'.")
    return Lexicon(chars=tables[0], words=tables[1])


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def _plain_card(parts: ModelParts) -> str:
    lstm = parts.config.lstm
    sizes = f"{lstm.num_layers} layers, {lstm.cell_dim} cells, projection {lstm.proj_dim}"
    return (
        "# A biLM\n\n"
        f"- {sizes}; vectors of {parts.config.dim}.\n"
        f"- From: {parts.about.get('source', parts.source) or 'unknown'}\n"
        "- Trained on, licence, intended use: not recorded. Fill this in before you pass the model on.\n"
    )
