"""Checks before a task run trains: its files and biLM can be read, and an earlier run in its folder is the same run."""

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

# settings that do not change what is learned
NO_EFFECT = ("train.device", "train.keep_checkpoint", "elmo.cache", "elmo.cache_dir")
Identities = dict[str, str]  # model name -> checksum, so that several runs load each biLM only once


def check_ready(config: RunConfig, identities: Identities | None = None) -> None:
    """An error if a file of the run or its biLM cannot be read."""
    check_files(config)
    _elmo_identity(config, {} if identities is None else identities)


def check_files(config: RunConfig) -> None:
    """An error if a file of the run cannot be opened."""
    for path in _files(config).values():
        open_bytes(path).close()


def check_folder(out: Path) -> None:
    """An OutputError if the folder cannot be created or written to. Creates nothing."""
    existing = out.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise OutputError(f"{out}: {existing} is a file; a folder was expected.")
    if not os.access(existing, os.W_OK):
        raise OutputError(f"{out}: the folder {existing} may not be written to.")


def check_done(out: Path, config: RunConfig, identities: Identities | None = None) -> dict[str, Any] | None:
    """The record of the finished run in `out`; None if `config` has more epochs, with which the run can continue.

    It is an error if other settings, the files or the biLM are not those of `config`. Fewer epochs are no difference:
    the run has made them.
    """
    record, now = read_record(out), config.to_dict()
    is_longer = has_more_epochs(record["config"], now)
    now["train"]["epochs"] = record["config"]["train"]["epochs"]
    check_config(out, record["config"], now)
    identities = {} if identities is None else identities
    check_ready(config, identities)
    before = {split: about["sha256"] for split, about in record["data"].items()}
    for name in ("vectors", "elmo"):
        before[name] = (record[name] or {}).get("sha256")
    sums = {name: sha256_file(path) for name, path in _files(config).items()}
    check_same(out, {"sha256": before}, {"sha256": {**sums, "elmo": _elmo_identity(config, identities)}})
    return None if is_longer else record


def check_config(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """As `check_same`, for all settings of a run, except that it may get more epochs than before.

    Without ELMo the section "elmo" has no effect and is ignored.
    """
    if has_more_epochs(before, now):
        before = {**before, "train": {**before["train"], "epochs": now["train"]["epochs"]}}
    if before["elmo"]["mode"] == now["elmo"]["mode"] == "none":
        before, now = ({k: v for k, v in values.items() if k != "elmo"} for values in (before, now))
    check_same(out, before, now)


def has_more_epochs(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether the settings of a run have a larger number of epochs than before."""
    return bool(now["train"]["epochs"] > before["train"].get("epochs", 0))


def check_same(out: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A ConfigError that names the first setting, by its key, in which the run in `out` differs from this one."""
    for key, (old, new) in changed_settings(before, now, ignore=NO_EFFECT).items():
        raise ConfigError(
            f"{out} holds a run with {key} = {old!r}; now it is {new!r}.",
            "Choose another --out, or give the same settings and files.",
        )


def _files(config: RunConfig) -> dict[str, str]:
    data = config.data
    if not data.train or not data.dev:
        raise ConfigError("Training needs a train and a dev file.", "Give --train FILE --dev FILE.")
    files = {"train": data.train, "dev": data.dev, "test": data.test, "vectors": config.words.vectors}
    return {name: path for name, path in files.items() if path}


def _elmo_identity(config: RunConfig, identities: Identities) -> str | None:
    model = config.elmo.model
    if not config.elmo.used:
        return None
    if model not in identities:
        identities[model] = vectors_checksum(load(model, device=choose_device(config.train.device)))
    return identities[model]
