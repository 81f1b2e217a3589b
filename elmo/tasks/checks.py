"""What is asked for, held against what there is, before any training: files, the biLM, a folder's earlier run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from elmo.devices import choose_device
from elmo.embed.load import load
from elmo.embed.model_checksum import vectors_checksum
from elmo.errors import ConfigError, OutputError
from elmo.files import open_bytes, sha256_file
from elmo.settings import changed_settings
from elmo.tasks.config import RunConfig
from elmo.tasks.record import read_record

NO_EFFECT = ("train.device", "elmo.cache", "elmo.cache_dir")  # settings that do not change what is learned
Identities = dict[str, str]  # of biLMs by their names: each is loaded once for a set of runs


def check_ready(config: RunConfig, known: Identities | None = None) -> None:
    """Refuses settings whose files or biLM cannot be read."""
    for path in _files(config).values():
        open_bytes(path).close()
    _identity(config, {} if known is None else known)


def check_folder(out: Path) -> None:
    """Refuses a run's folder that could not be made or written to; makes nothing."""
    place = out.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise OutputError(f"{out}: {place} is a file; a folder was expected.")
    if not os.access(place, os.W_OK):
        raise OutputError(f"{out}: the folder {place} may not be written to.")


def check_done(out: Path, config: RunConfig, known: Identities | None = None) -> dict[str, Any]:
    """The record of a finished run, if it is of these settings, these files and this biLM."""
    record = read_record(out)
    check_config(out, record["config"], config.to_dict())
    known = {} if known is None else known
    check_ready(config, known)
    before = {split: about["sha256"] for split, about in record["data"].items()}
    for name in ("vectors", "elmo"):
        before[name] = (record[name] or {}).get("sha256")
    now = {name: sha256_file(path) for name, path in _files(config).items()}
    check_same(out, {"sha256": before}, {"sha256": {**now, "elmo": _identity(config, known)}})
    return record


def check_config(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """As `check_same`, of whole settings: without ELMo, the rest of its section means nothing."""
    if before["elmo"]["mode"] == now["elmo"]["mode"] == "none":
        before, now = ({k: v for k, v in values.items() if k != "elmo"} for values in (before, now))
    check_same(out, before, now)


def check_same(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A ConfigError that names the first setting, by its key, in which the run in `out` differs from this one."""
    for key, (old, new) in changed_settings(before, now, ignore=NO_EFFECT).items():
        raise ConfigError(
            f"{out} holds a run with {key} = {old!r}; now it is {new!r}.",
            "Choose another --out, or ask for the same settings and files.",
        )


def _files(config: RunConfig) -> dict[str, str]:
    data = config.data
    if not data.train or not data.dev:
        raise ConfigError("Training needs a train and a dev file.", "Give --train FILE --dev FILE.")
    files = {"train": data.train, "dev": data.dev, "test": data.test, "vectors": config.words.vectors}
    return {name: path for name, path in files.items() if path}


def _identity(config: RunConfig, known: Identities) -> str | None:
    model = config.elmo.model
    if not config.elmo.used:
        return None
    if model not in known:
        known[model] = vectors_checksum(load(model, device=choose_device(config.train.device)))
    return known[model]
