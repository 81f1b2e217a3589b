"""Decides whether a prepared folder belongs to the same text and options, so that it can be reused.

A source is the same if its name, size and modification time are the same, or if its sha256 is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError, OutputError
from elmo.files import sha256_file
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.prepared import MANIFEST, PreparedData, open_prepared, read_manifest
from elmo.pretrain.data.sources import Source
from elmo.pretrain.data.splits import SPLIT_NAMES
from elmo.settings import changed_settings
from elmo.text.encodings import UTF8

_DEFAULT_OPTIONS = {"encoding": UTF8, "temperature": 1.0}  # of folders from before these options existed

log = logging.getLogger(__name__)


def describe_sources(
    sources: Sequence[Source], source_splits: np.ndarray, num_workers: int | None
) -> list[dict[str, Any]]:
    """One manifest record per source, by which `reuse_prepared` recognises the text."""
    small = sum(source.size for source in sources) < 64 << 20
    hashes = map_in_order(_hash_source, sources, 1 if small else num_workers)
    return [
        {"path": source.path, "split": SPLIT_NAMES[split], "size": source.size, "mtime_ns": modified_ns(source)}
        | {"sha256": sha256}
        | ({} if source.language is None else {"language": source.language})
        for source, split, sha256 in zip(sources, source_splits, hashes, strict=True)
    ]


def _hash_source(source: Source) -> str:
    try:
        return "" if source.stream else sha256_file(source.path)
    except OSError as error:
        raise DataError(f"{source.path}: cannot be read ({error.strerror}).") from error


def modified_ns(source: Source) -> int:
    """The file's modification time in nanoseconds; 0 for a stream."""
    try:
        return 0 if source.stream else os.stat(source.path).st_mtime_ns
    except OSError as error:
        raise DataError(f"{source.path}: cannot be read ({error.strerror}).") from error


def reuse_prepared(
    out: Path, sources: Sequence[Source], source_splits: np.ndarray, options: dict[str, Any]
) -> PreparedData:
    """Opens the folder `out` if it holds this text prepared with these options; else an error lists the differences."""
    if not (out / MANIFEST).exists():
        raise OutputError(
            f"{out} exists and is not prepared text.", "Choose another folder. --overwrite replaces this one."
        )
    manifest = read_manifest(out)
    differences = [
        f"{name}: {before!r} then, {after!r} now"
        for name, (before, after) in changed_settings(_DEFAULT_OPTIONS | manifest["options"], options).items()
    ]
    if len(sources) != len(manifest["sources"]):
        differences.append(f"files: {len(manifest['sources'])} then, {len(sources)} now")
    for source, split, record in zip(sources, source_splits, manifest["sources"], strict=False):
        if source.stream:
            name = "standard input" if source.path == "-" else source.path
            differences.append(f"{name} cannot be compared with the text that was read then")
        elif SPLIT_NAMES[split] != record["split"]:
            differences.append(f"{source.path}: {record['split']} then, {SPLIT_NAMES[split]} now")
        elif source.language != record.get("language"):
            differences.append(f"{source.path}: language {record.get('language')} then, {source.language} now")
        elif not _is_same_text(source, record):
            differences.append(f"{source.path}: differs from the text that was prepared as {record['path']}")
    if differences:
        raise OutputError(
            f"{out} was prepared from other text or with other options.",
            "\n  ".join([*differences[:20], "Choose another folder. --overwrite replaces this one."]),
        )
    log.info("%s is up to date.", out)
    return open_prepared(out, verify=True)


def _is_same_text(source: Source, record: dict[str, Any]) -> bool:
    """Compares size, then name and modification time, and if these differ the sha256."""
    if source.size != record["size"]:
        return False
    unmodified = (source.path, modified_ns(source)) == (record["path"], record["mtime_ns"])
    return unmodified or _hash_source(source) == record["sha256"]
