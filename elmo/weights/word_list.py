"""Reads and writes a model's word list: one word per line, UTF-8, compressed if the file name says so."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterable
from lzma import LZMAError
from pathlib import Path

from elmo.errors import WeightsError
from elmo.files import open_bytes

MAX_BYTES = 1 << 30  # after decompression
_SKIPPED_LINE = "!!!MAXTERMID"  # a line in old vocabulary files, which bilm-tf skips


def read_words(path: Path) -> tuple[str, ...]:
    """The stripped lines of a word list; a blank line is an empty word, because a word's id is its line number."""
    try:
        with open_bytes(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error, LZMAError) as error:
        raise WeightsError(f"{path}: cannot be read as a word list ({str(error)[:200]}).") from error
    if len(data) > MAX_BYTES:
        raise WeightsError(f"{path}: more than {MAX_BYTES:,} bytes of words.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise WeightsError(f"{path}:{line}: not UTF-8 (byte {error.start}).", "Word lists are UTF-8.") from error
    words = [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []
    return tuple(word for word in words if word != _SKIPPED_LINE)


def write_words(path: Path, words: Iterable[str]) -> None:
    """Writes one word per line, as `read_words` reads them; compressed if the name ends in .xz."""
    data = "".join(f"{word}\n" for word in words).encode("utf-8")
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
