"""Streams the lines of text files, compressed or not; all corpora and input files are read through it.

A line ends at "\n" or "\r\n" and nowhere else, so that line numbers agree with other tools: U+2028, U+0085, a vertical
tab or a lone "\r" are ordinary characters of a line. Memory use is bounded by the maximum line length.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from elmo.errors import ConfigError, DataError
from elmo.files import DAMAGE, open_bytes

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
_BOM = b"\xef\xbb\xbf"


def read_lines(
    path: str | Path, *, errors: Literal["strict", "replace"] = "strict", max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[str]:
    """The lines of a UTF-8 file (.gz .bz2 .xz .zst are decompressed, "-" is standard input), without line ends.

    A byte-order mark at the start is dropped; an empty file has no lines. Bytes that are not UTF-8 are a DataError that
    names file, line and byte; with errors="replace" they become U+FFFD, and one warning at the end counts the lines.
    """
    if errors not in ("strict", "replace"):
        raise ConfigError(f"errors={errors!r} is unknown.", "Use 'strict' or 'replace'.")
    return _decode(path, errors == "replace", max_line_bytes)


def _decode(path: str | Path, replace: bool, max_line_bytes: int) -> Iterator[str]:
    num_replaced, first_replaced = 0, 0
    offset = 0  # of the line's first byte, in the decompressed file
    try:
        for number, (line, ended) in enumerate(_byte_lines(path, max_line_bytes), 1):
            content = line[:-1] if ended and line.endswith(b"\r") else line
            skipped = len(_BOM) if number == 1 and content.startswith(_BOM) else 0
            try:
                text = content[skipped:].decode()
            except UnicodeDecodeError as error:
                if not replace:
                    raise DataError(
                        f"{path}:{number}: byte {offset + skipped + error.start} (0x{line[skipped + error.start]:02x}) "
                        f"is not UTF-8 ({error.reason}).",
                        "Convert the file to UTF-8. --errors replace continues with U+FFFD in place of such bytes.",
                    ) from error
                text = content[skipped:].decode(errors="replace")
                num_replaced += 1
                first_replaced = first_replaced or number
            offset += len(line) + ended
            if text or ended:  # a file that is only a byte-order mark is empty
                yield text
    finally:
        if num_replaced:
            log.warning("%s: %d lines were not UTF-8, the first is line %d.", path, num_replaced, first_replaced)


def _byte_lines(path: str | Path, max_line_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Each line's bytes without "\n", and whether it ended with one: only the last line may not."""
    parts: list[bytes] = []  # of a line that began in an earlier block
    length = 0  # of `parts`
    number = 1
    for block in _blocks(path):
        first, *rest = block.split(b"\n")
        parts.append(first)
        length += len(first)
        _check_length(path, number, length, max_line_bytes)
        if not rest:
            continue
        yield b"".join(parts), True
        for line in rest[:-1]:
            number += 1
            _check_length(path, number, len(line), max_line_bytes)
            yield line, True
        number += 1
        parts, length = [rest[-1]], len(rest[-1])
        _check_length(path, number, length, max_line_bytes)
    if length:
        yield b"".join(parts), False


def _check_length(path: str | Path, number: int, length: int, limit: int) -> None:
    if length > limit:
        raise DataError(
            f"{path}:{number}: the line is longer than {limit:,} bytes.", "Is this text with one sentence per line?"
        )


def _blocks(path: str | Path) -> Iterator[bytes]:
    """A file's bytes, decompressed, in blocks of about BLOCK_BYTES; a truncated or damaged file is a DataError."""
    num_bytes = 0
    try:
        for block in _raw_blocks(path):
            num_bytes += len(block)
            yield block
    except DAMAGE as error:
        raise DataError(
            f"{path}: cannot be read past byte {num_bytes:,} of its text ({error or type(error).__name__}).",
            "The file is truncated or damaged; download it again.",
        ) from error


def _raw_blocks(path: str | Path) -> Iterator[bytes]:
    file = open_bytes(path)
    try:
        while block := file.read(BLOCK_BYTES):
            yield block
    finally:
        if str(path) != "-":
            file.close()
