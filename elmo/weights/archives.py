"""Zip files of models (the NLPL repository's form), unpacked into a temporary folder after their list is checked."""

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

MOST_ENTRIES = 1_000
LARGEST_TOTAL = 16 << 30  # bytes unpacked
LARGEST_EXPANSION = 200  # times the archive's own size, for archives past a megabyte unpacked


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A temporary folder with the archive's files, gone afterwards; any entry that could do harm refuses the whole."""
    with tempfile.TemporaryDirectory(prefix="elmo-") as name:
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as archive:
                _check(archive, path)
                archive.extractall(folder)
        # zipfile meets damage with these, and NotImplementedError for methods it does not know
        except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError) as error:
            raise WeightsError(f"{path}: damaged zip ({str(error)[:200]}).", "Download it again.") from error
        except OSError as error:
            raise WeightsError(
                f"{path}: cannot be unpacked into {folder} ({error.strerror or error}).",
                "Is the disk full? TMPDIR chooses another place; an unpacked folder is read in place.",
            ) from error
        yield folder


def _check(archive: zipfile.ZipFile, path: Path) -> None:
    entries = archive.infolist()
    if len(entries) > MOST_ENTRIES:
        raise WeightsError(f"{path} holds {len(entries):,} entries.", f"A model has at most {MOST_ENTRIES}.")
    for entry in entries:
        name = PurePosixPath(entry.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in entry.filename:
            raise WeightsError(f"{path}: entry {entry.filename!r} would land outside its folder.", "Not a model's zip.")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise WeightsError(f"{path}: entry {entry.filename!r} is a link.", "Links are not allowed in a zip.")
    total = sum(entry.file_size for entry in entries)
    if total > LARGEST_TOTAL or total > max(1 << 20, LARGEST_EXPANSION * path.stat().st_size):
        raise WeightsError(f"{path}: {path.stat().st_size:,} bytes would unpack to {total:,}.", "Refused as a bomb.")
    options = [e.filename for e in entries if PurePosixPath(e.filename).name == "options.json"]
    if len(options) > 1:
        raise WeightsError(f"{path} holds {len(options)} options.json: {', '.join(options[:4])}.", "Which is meant?")
