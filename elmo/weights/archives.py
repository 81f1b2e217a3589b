"""Unpacks archives of models, after a check of their entries: zip into a temporary folder, tar beside the archive."""

from __future__ import annotations

import lzma
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from elmo.errors import WeightsError
from elmo.files import atomic_file
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


def unpack_tar(path: Path, folder: Path) -> None:
    """Writes the files of a tar into a folder, without the folders inside the tar; an unsafe entry is an error."""
    try:
        with memory_bound(path), tarfile.open(path) as archive:
            entries = [entry for entry in archive.getmembers() if not entry.isdir()]
            _check_tar_entries(entries, path)
            for entry in entries:
                source = archive.extractfile(entry)
                assert source is not None  # a regular file
                with (
                    source,
                    atomic_file(folder / PurePosixPath(entry.name).name) as partial,
                    open(partial, "wb") as file,
                ):
                    shutil.copyfileobj(source, file, 1 << 20)
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        raise WeightsError(f"{path}: damaged tar ({str(error)[:200]}).", "Download it again.") from error


def _check_tar_entries(entries: list[tarfile.TarInfo], path: Path) -> None:
    names = [PurePosixPath(entry.name).name for entry in entries]
    if not entries or len(entries) > MAX_ENTRIES or len(set(names)) != len(names):
        raise WeightsError(
            f"{path} holds {len(entries):,} files with {len(set(names)):,} names.", "It is not a model's tar."
        )
    for entry in entries:
        parts = PurePosixPath(entry.name)
        if not entry.isfile() or parts.is_absolute() or ".." in parts.parts or "\\" in entry.name:
            raise WeightsError(
                f"{path}: entry {entry.name!r} is not a file inside a folder.", "It is not a model's tar."
            )
    _check_total(sum(entry.size for entry in entries), path)


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
    _check_total(sum(entry.file_size for entry in entries), path)
    options = [e.filename for e in entries if PurePosixPath(e.filename).name == "options.json"]
    if len(options) > 1:
        raise WeightsError(
            f"{path} holds {len(options)} options.json: {', '.join(options[:4])}.",
            "Unpack it and name the model's folder.",
        )


def _check_total(total: int, path: Path) -> None:
    check_unpacked(total, path)
    if total > MAX_TOTAL_BYTES:
        raise WeightsError(f"{path} unpacks to {total:,} bytes.", f"At most {MAX_TOTAL_BYTES:,} bytes are unpacked.")
