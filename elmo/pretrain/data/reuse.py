"""Is a prepared folder that of the same text and options? Sources are known again by name, size and time, or sha256."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError, OutputError
from elmo.files import sha256_file
from elmo.pretrain.data.corpus import Source
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.prepared import MANIFEST, PreparedData, open_prepared, read_manifest
from elmo.settings import changed_settings

log = logging.getLogger(__name__)


def describe(sources: Sequence[Source], splits: np.ndarray, num_workers: int | None) -> list[dict[str, Any]]:
    """A record of each text, to know it again."""
    small = sum(source.size for source in sources) < 64 << 20
    hashes = map_in_order(_hash_source, sources, 1 if small else num_workers)
    return [
        {"path": source.path, "split": ("train", "heldout")[split], "size": source.size, "mtime_ns": mtime(source)}
        | {"sha256": sha256}
        for source, split, sha256 in zip(sources, splits, hashes, strict=True)
    ]


def _hash_source(source: Source) -> str:
    try:
        return "" if source.stream else sha256_file(source.path)
    except OSError as error:
        raise DataError(f"{source.path}: cannot be read ({error.strerror}).") from error


def mtime(source: Source) -> int:
    """When the text was written, in nanoseconds; 0 of a stream."""
    try:
        return 0 if source.stream else os.stat(source.path).st_mtime_ns
    except OSError as error:
        raise DataError(f"{source.path}: cannot be read ({error.strerror}).") from error


def reuse(out: Path, sources: Sequence[Source], splits: np.ndarray, options: dict[str, Any]) -> PreparedData:
    """The folder `out`, if it was made from this text with these options; else an error that says the differences."""
    if not (out / MANIFEST).exists():
        raise OutputError(f"{out} exists and is not prepared text.", "Choose another name or pass --overwrite.")
    old = read_manifest(out)
    differences = [
        f"{name}: {before!r} then, {after!r} now"
        for name, (before, after) in changed_settings(old["options"], options).items()
    ]
    if len(sources) != len(old["sources"]):
        differences.append(f"files: {len(old['sources'])} then, {len(sources)} now")
    for source, split, record in zip(sources, splits, old["sources"], strict=False):
        if source.stream:
            name = "standard input" if source.path == "-" else source.path
            differences.append(f"{name} cannot be compared with what was read then")
        elif ("train", "heldout")[split] != record["split"]:
            differences.append(f"{source.path}: {record['split']} then, {('train', 'heldout')[split]} now")
        elif not _same_text(source, record):
            differences.append(f"{source.path}: not the text that was prepared as {record['path']}")
    if differences:
        raise OutputError(
            f"{out} was prepared from other text or with other options.",
            "\n  ".join([*differences[:20], "Choose another folder, or pass --overwrite to replace it."]),
        )
    log.info("%s is up to date.", out)
    return open_prepared(out)


def _same_text(source: Source, record: dict[str, Any]) -> bool:
    """By name, size and time, or else by its sha256."""
    if source.size != record["size"]:
        return False
    untouched = (source.path, mtime(source)) == (record["path"], record["mtime_ns"])
    return untouched or _hash_source(source) == record["sha256"]
