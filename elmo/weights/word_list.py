"""A model's list of words as it lies in a file: one a line, UTF-8, compressed by suffix."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterable
from lzma import LZMAError
from pathlib import Path

from elmo.errors import WeightsError
from elmo.files import open_bytes

LARGEST_WORDS = 1 << 30  # bytes after decompression
_SKIPPED_LINE = "!!!MAXTERMID"  # a line that old vocabulary files carry and the reference skips


def read_words(path: Path) -> tuple[str, ...]:
    """The words by line, stripped; what is not a word list is an error."""
    try:
        with open_bytes(path) as file:
            data = file.read(LARGEST_WORDS + 1)
    except (OSError, EOFError, zlib.error, LZMAError) as error:
        raise WeightsError(f"{path}: cannot be read as a word list ({str(error)[:200]}).") from error
    return parse_words(data, str(path))


def write_words(path: Path, words: Iterable[str]) -> None:
    """The words one a line, as `read_words` reads them; compressed where the name ends in .xz."""
    data = "".join(f"{word}\n" for word in words).encode("utf-8")
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)


def parse_words(data: bytes, source: str) -> tuple[str, ...]:
    """The same for bytes already in memory."""
    if len(data) > LARGEST_WORDS:
        raise WeightsError(f"{source}: more than {LARGEST_WORDS:,} bytes of words.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise WeightsError(f"{source}:{line}: not UTF-8 (byte {error.start}).", "Word lists are UTF-8.") from error
    words = [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []
    return tuple(word for word in words if word != _SKIPPED_LINE)  # a blank line keeps its number: ids are lines
