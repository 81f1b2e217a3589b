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
    splits = [SPLIT_NAMES[split] for split in source_splits]
    differences += _source_differences(sources, splits, manifest["sources"])
    if differences:
        raise OutputError(
            f"{out} was prepared from other text or with other options.",
            "\n  ".join([*differences[:20], "Choose another folder. --overwrite replaces this one."]),
        )
    log.info("%s is up to date.", out)
    return open_prepared(out, verify=True)


def _source_differences(
    sources: Sequence[Source], splits: Sequence[str], records: Sequence[dict[str, Any]]
) -> list[str]:
    """What differs between the files and those of a prepared folder; [] if they are the same, in the same order.

    A file may have another name, if its text is the same and no file has its old name.
    """
    if len(sources) == len(records) and not any(
        _difference(*of_one) for of_one in zip(sources, splits, records, strict=True)
    ):
        return []
    unmatched = {record["path"]: number for number, record in enumerate(records)}
    numbers = [unmatched.pop(source.path, None) for source in sources]  # of the records
    differences = []
    for index, (source, split) in enumerate(zip(sources, splits, strict=True)):
        number = numbers[index]
        if number is None:
            renamed = (n for n in unmatched.values() if not _difference(source, split, records[n]))
            number = numbers[index] = next(renamed, None)
            if number is not None:
                del unmatched[records[number]["path"]]
        difference = "new" if number is None else _difference(source, split, records[number])
        if difference:
            differences.append(f"{_name(source.path)}: {difference}")
    differences += [f"{_name(path)}: no longer named" for path in unmatched]
    matched = [number for number in numbers if number is not None]
    return differences + (["the order of the files differs"] if matched != sorted(matched) else [])


def _difference(source: Source, split: str, record: dict[str, Any]) -> str:
    """What differs between a file and the record of one that was prepared; empty if they are the same."""
    if source.stream:
        return "cannot be compared with the text that was read then"
    if split != record["split"]:
        return f"{record['split']} then, {split} now"
    if source.language != record.get("language"):
        return f"language {record.get('language')} then, {source.language} now"
    return "" if _is_same_text(source, record) else "differs from the text that was prepared"


def _name(path: str) -> str:
    return "standard input" if path == "-" else path


def _is_same_text(source: Source, record: dict[str, Any]) -> bool:
    """Compares size, then name and modification time, and if these differ the sha256."""
    if source.size != record["size"]:
        return False
    unmodified = (source.path, modified_ns(source)) == (record["path"], record["mtime_ns"])
    return unmodified or _hash_source(source) == record["sha256"]
