"""Fetches a published model of the catalogue into the user's folder of models, where `elmo.load` finds it by name.

    $ELMO_HOME/models/NAME/                  the files, and download.json with their addresses, sizes and sha256
    $ELMO_HOME/models/.downloads/NAME/       files that are not complete yet
    $ELMO_HOME/models/.downloads/NAME.lock   locked by the process that downloads the model

The folder gets its final name when all files are complete, so that no reader finds half a model. A checksum that the
catalogue does not know is recorded at the first download and checked whenever the model is read. This module does not
import torch.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError, OutputError, WeightsError
from elmo.files import atomic_file, explain_write, file_lock, read_json, sha256_file
from elmo.staging import move_into_place
from elmo.weights.archives import unpack_tar
from elmo.weights.catalogue import PUBLISHED_MODELS, PublishedModel
from elmo.weights.download import TIMEOUT_SECONDS, download
from elmo.weights.hub import hub_folder, is_hub_name, parse_hub_name
from elmo.weights.model_folders import local_models, models_folder
from elmo.weights.model_names import MIRROR_VARIABLE, by_hand_steps, resolve_alias, unknown_name
from elmo.weights.partial_file import Expected

log = logging.getLogger(__name__)

RECORD = "download.json"


def fetch_model(
    name: str, *, url_base: str | None = None, show: bool | None = None, timeout: float | None = None
) -> Path:
    """Downloads a published model unless it is on this machine; returns its folder.

    `url_base` (or the environment variable ELMO_MIRROR) is a mirror that has the files as BASE/NAME/FILE. Another
    process that downloads the same model is waited for. `timeout` is in seconds; None: 30. A name hf://USER/NAME is
    downloaded, or brought up to date, in the cache of the Hugging Face Hub.
    """
    if is_hub_name(name):
        if url_base is not None or timeout is not None:
            hint = "For the hub, set the environment variables HF_ENDPOINT and HF_HUB_DOWNLOAD_TIMEOUT."
            raise ConfigError(f"{name[:200]!r} is on the Hugging Face Hub: a mirror and a timeout are not used.", hint)
        return hub_folder(parse_hub_name(name))
    timeout = TIMEOUT_SECONDS if timeout is None else timeout
    name = resolve_alias(name)
    model = PUBLISHED_MODELS.get(name)
    here = local_models().get(name)
    if here is not None:
        check_record(here, name)
        _check_complete(model, here)
        return here
    if model is None:
        raise unknown_name(name)
    if not model.fetchable:
        raise WeightsError(
            f"{name!r} cannot be downloaded by elmo fetch: {model.obstacle or model.by_hand}", by_hand_steps(model)
        )
    downloads = models_folder() / ".downloads"
    with explain_write(downloads):
        downloads.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        _lock(stack, downloads / f"{name}.lock", name)
        here = local_models().get(name)  # another process may have finished meanwhile
        return here if here is not None else _fetch(model, downloads / name, url_base, show, timeout)


def check_record(folder: Path, name: str) -> None:
    """Compares the files of a fetched model with the sizes and sha256 recorded at its download, if there are any."""
    if not (folder / RECORD).is_file():
        return
    record = read_json(folder / RECORD, error=WeightsError)
    files = record.get("files")
    if not isinstance(files, dict):
        raise WeightsError(f"{folder / RECORD}: 'files' is missing.", f"Delete {folder} and run `elmo fetch {name}`.")
    for file_name, facts in files.items():
        path = folder / Path(file_name).name
        same = path.is_file() and path.stat().st_size == facts["bytes"] and sha256_file(path) == facts["sha256"]
        if not same:
            raise WeightsError(
                f"{path} is not the file that was downloaded (it is missing or its sha256 differs).",
                f"Delete {folder} and run `elmo fetch {name}`.",
            )


def _fetch(model: PublishedModel, staging: Path, url_base: str | None, show: bool | None, timeout: float) -> Path:
    base = _mirror(url_base)
    folder = models_folder() / model.name
    log.info("%s: downloading into %s", model.name, folder)
    with explain_write(staging):
        staging.mkdir(exist_ok=True)
    sources: dict[str, Any] = {}
    for file in model.files:
        url = file.url if base is None else f"{base}/{model.name}/{file.name}"
        path = staging / file.name
        expected = Expected(num_bytes=file.num_bytes, sha256=file.sha256, sha1=file.sha1)
        try:
            # a file that an earlier call completed is not downloaded again
            sha256 = sha256_file(path) if path.is_file() else download(
                url, path, expected, label=f"{model.name}: {file.name}", show=show, timeout=timeout
            )  # fmt: skip
        except WeightsError as error:
            mirror = f"A mirror can be named with {MIRROR_VARIABLE} (files as BASE/{model.name}/FILE)."
            again = f"`elmo fetch {model.name}` continues where this ended. {mirror}"
            raise WeightsError(error.message, "\n  ".join([error.hint, again, by_hand_steps(model)])) from error
        sources[file.name] = {"url": url, "sha256": sha256}
    if model.kind == "tar":
        _unpack(staging, model)
    files = {p.name: {"bytes": p.stat().st_size, "sha256": sha256_file(p)} for p in sorted(staging.iterdir())}
    with atomic_file(staging / RECORD) as partial:
        partial.write_text(json.dumps({"name": model.name, "sources": sources, "files": files}, indent=1) + "\n")
    with explain_write(folder):
        if folder.is_dir():
            folder.rmdir()  # an empty folder does not count as a model; a filled one would have been found
        move_into_place(staging, folder, overwrite=False)
    return folder


def _unpack(staging: Path, model: PublishedModel) -> None:
    for file in model.files:
        unpack_tar(staging / file.name, staging)
        (staging / file.name).unlink()


def _check_complete(model: PublishedModel | None, folder: Path) -> None:
    """Raises OutputError if a folder under a model's name holds only some of its files."""
    names = {path.name for path in folder.iterdir()}
    if model is None or "manifest.json" in names or model.kind in ("zip", "manylangs", "tar"):
        return
    missing = [file.name for file in model.files if file.name not in names]
    if missing and len(missing) < len(model.files):
        raise OutputError(
            f"{folder} has some files of {model.name!r}, but not {', '.join(missing)}.",
            f"Add them by hand, or delete that folder and run `elmo fetch {model.name}`.",
        )


def _lock(stack: ExitStack, path: Path, name: str) -> None:
    """Takes the lock of a download; if another process has it, says so and waits."""
    try:
        stack.enter_context(file_lock(path, f"{name} is being downloaded by", "Wait for it."))
    except OutputError as error:
        log.warning("%s Waiting for it to finish.", error.message)
        stack.enter_context(file_lock(path, "", "", wait=True))


def _mirror(url_base: str | None) -> str | None:
    base = url_base or os.environ.get(MIRROR_VARIABLE) or None
    if base is None:
        return None
    if not base.startswith(("https://", "http://")):
        raise ConfigError(f"The mirror is {base!r}.", "It must be an address that starts with https:// or http://.")
    return base.rstrip("/")
