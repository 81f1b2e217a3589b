"""The partial file of a download: its bytes so far, notes on where they came from, and the check of the complete file.

FILE.part        the bytes received so far
FILE.part.json   the address they came from, the server's validator (ETag or Last-Modified) and the complete size
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import DataError, WeightsError
from elmo.files import atomic_file, file_checksum, read_json, sha256_file

_MAGIC = {".hdf5": b"\x89HDF\r\n\x1a\n", ".zip": b"PK", ".gz": b"\x1f\x8b", ".tgz": b"\x1f\x8b", ".xz": b"\xfd7zXZ"}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is known of a file before its download; None: unknown."""

    num_bytes: int | None = None
    sha256: str | None = None
    sha1: str | None = None  # some publishers give only this; it shows damage, not an attack


def read_notes(part: Path, url: str) -> dict[str, Any]:
    """The notes on a partial file; empty if there are none or the file came from another address."""
    path = notes_path(part)
    if not path.is_file():
        return {}
    try:
        notes = read_json(path)
    except DataError:  # damaged: the download starts again
        return {}
    return notes if notes.get("url") == url else {}


def write_notes(part: Path, notes: dict[str, Any]) -> None:
    """Stores the notes on a partial file."""
    with atomic_file(notes_path(part)) as partial:
        partial.write_text(json.dumps(notes), encoding="utf-8")


def notes_path(part: Path) -> Path:
    """The file of the notes on a partial file."""
    return part.with_name(part.name + ".json")


def discard(part: Path) -> None:
    """Deletes a partial file and its notes."""
    part.unlink(missing_ok=True)
    notes_path(part).unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """The number of bytes of a file; 0 if it does not exist."""
    return path.stat().st_size if path.is_file() else 0


def verify(url: str, part: Path, expected: Expected) -> str:
    """The sha256 of the received file, which is deleted if it is not the expected one."""
    size = size_of(part)
    sha256 = sha256_file(part)
    problem = ""
    if expected.num_bytes is not None and size != expected.num_bytes:
        problem = f"it has {size:,} bytes; expected {expected.num_bytes:,}"
    elif expected.sha256 is not None and sha256 != expected.sha256:
        problem = f"its sha256 is {sha256}; expected {expected.sha256}"
    elif expected.sha1 is not None and (sha1 := file_checksum(part, "sha1")) != expected.sha1:
        problem = f"its sha1 is {sha1}; expected {expected.sha1}"
    else:
        name = part.name.removesuffix(".part")
        magic = _MAGIC.get(Path(name).suffix, b"")
        with open(part, "rb") as file:
            begin = file.read(16)
        text = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not begin.startswith(magic) or (name.endswith(".json") and not text.startswith(b"{")):
            problem = f"it starts with {begin!r}"
    if problem:
        discard(part)
        raise WeightsError(f"{url}: not the published file, {problem}.", "The received file was deleted. Try again.")
    return sha256
