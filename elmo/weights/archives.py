"""Unpacks zip files of models (as in the NLPL repository) into a temporary folder, after a check of their entries."""

from __future__ import annotations

import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from elmo.errors import WeightsError
from elmo.weights.memory_bound import check_unpacked, memory_bound

MAX_ENTRIES = 1_000
MAX_TOTAL_BYTES = 16 << 30  # unpacked


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A temporary folder with the archive's files, deleted on exit; one unsafe entry makes the archive an error."""
    with memory_bound(path), tempfile.TemporaryDirectory(prefix="elmo-") as name:
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as archive:
                _check_entries(archive, path)
                archive.extractall(folder)
        # zipfile raises these for damaged files; RuntimeError includes NotImplementedError for unknown methods
        except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError) as error:
            raise WeightsError(f"{path}: damaged zip ({str(error)[:200]}).", "Download it again.") from error
        except OSError as error:
            raise WeightsError(
                f"{path}: cannot be unpacked into {folder} ({error.strerror or error}).",
                "Is the disk full? Set TMPDIR to another folder, or unpack the zip yourself and name its folder.",
            ) from error
        yield folder


def _check_entries(archive: zipfile.ZipFile, path: Path) -> None:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise WeightsError(f"{path} holds {len(entries):,} entries.", f"A model has at most {MAX_ENTRIES}.")
    for entry in entries:
        name = PurePosixPath(entry.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in entry.filename:
            raise WeightsError(
                f"{path}: entry {entry.filename!r} would be written outside its folder.", "It is not a model's zip."
            )
        if not name.name:
            raise WeightsError(f"{path}: an entry has the name {entry.filename!r}.", "It is not a model's zip.")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise WeightsError(f"{path}: entry {entry.filename!r} is a link.", "Links are not allowed in a zip.")
    total = sum(entry.file_size for entry in entries)
    check_unpacked(total, path)
    if total > MAX_TOTAL_BYTES:
        raise WeightsError(f"{path} unpacks to {total:,} bytes.", f"At most {MAX_TOTAL_BYTES:,} bytes are unpacked.")
    options = [e.filename for e in entries if PurePosixPath(e.filename).name == "options.json"]
    if len(options) > 1:
        raise WeightsError(
            f"{path} holds {len(options)} options.json: {', '.join(options[:4])}.",
            "Unpack it and name the model's folder.",
        )
