"""Streams the lines of text files, compressed or not; all corpora and input files are read through it.

A line ends at "\n" or "\r\n" and nowhere else, so that line numbers agree with other tools: U+2028, U+0085, a vertical
tab or a lone "\r" are ordinary characters of a line. Memory use is bounded by the maximum line length.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

from elmo.errors import ConfigError, DataError
from elmo.files import DAMAGE, open_bytes
from elmo.text.encodings import UTF8, UTF8_BOM, check_encoding, decoding_hint, has_newline_bytes

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
LineStart: TypeAlias = tuple[int, int]  # a line: how many lines precede it, and the offset of its first byte


def read_lines(
    path: str | Path,
    *,
    encoding: str = UTF8,
    errors: Literal["strict", "replace"] = "strict",
    max_line_bytes: int = MAX_LINE_BYTES,
    start: LineStart = (0, 0),
    warn: bool = True,
) -> Iterator[str]:
    """The lines of a text file (.gz .bz2 .xz .zst are decompressed, "-" is standard input), without line ends.

    `start` skips to a line whose position is known; this needs an encoding that `has_newline_bytes`.

    A byte-order mark at the start is dropped; an empty file has no lines. Invalid bytes are a DataError that names
    file, line and byte; with errors="replace" they become U+FFFD, and one warning at the end counts the lines,
    unless `warn` is False, for a file of which only a part is read or which is read more than once.
    """
    if errors not in ("strict", "replace"):
        raise ConfigError(f"errors={errors!r} is unknown.", "Use 'strict' or 'replace'.")
    encoding = check_encoding(encoding)
    replace = errors == "replace"
    if has_newline_bytes(encoding):
        decoded = _decode_lines(path, encoding, replace, max_line_bytes, start)
    else:
        assert start == (0, 0), "lines of this encoding have no known positions"
        decoded = _decode_blocks(path, encoding, replace, max_line_bytes)
    return _warn_of_replaced(decoded, path, encoding, start[0]) if warn else (line for line, _ in decoded)


def _warn_of_replaced(
    lines: Iterator[tuple[str, bool]], path: str | Path, encoding: str, num_skipped: int
) -> Iterator[str]:
    """The lines alone, of pairs with whether bytes of the line were replaced; one warning at the end counts these."""
    num_replaced, first_replaced = 0, 0
    try:
        for number, (line, is_replaced) in enumerate(lines, num_skipped + 1):
            if is_replaced:
                num_replaced += 1
                first_replaced = first_replaced or number
            yield line
    finally:
        if num_replaced:
            log.warning("%s: %d lines were not %s, the first is line %d.", path, num_replaced, encoding, first_replaced)


def _decode_lines(
    path: str | Path, encoding: str, replace: bool, max_line_bytes: int, start: LineStart
) -> Iterator[tuple[str, bool]]:
    """Each line and whether bytes were replaced, for encodings in which bytes can be cut into lines."""
    num_skipped, offset = start  # offset: of the line's first byte, in the decompressed file
    beginning = b""  # of the file
    for number, (line, ended) in enumerate(_byte_lines(path, max_line_bytes, start), num_skipped + 1):
        content = line[:-1] if ended and line.endswith(b"\r") else line
        beginning = beginning or line[:8]
        skipped = len(UTF8_BOM) if number == 1 and content.startswith(UTF8_BOM) else 0
        if skipped and encoding != UTF8:
            raise DataError(
                f"{path} is UTF-8, as its byte-order mark says, and not {encoding}.",
                "Leave out --encoding for this file.",
            )
        is_replaced = False
        try:
            text = content[skipped:].decode(encoding)
        except UnicodeDecodeError as error:
            if not replace:
                byte = offset + skipped + error.start
                value = line[skipped + error.start]
                raise _invalid_bytes(path, number, byte, value, error, encoding, beginning) from error
            text, is_replaced = content[skipped:].decode(encoding, errors="replace"), True
        offset += len(line) + ended
        if text or ended:  # a file that is only a byte-order mark is empty
            yield text, is_replaced


def _decode_blocks(path: str | Path, encoding: str, replace: bool, max_line_bytes: int) -> Iterator[tuple[str, bool]]:
    """The same for all other encodings, such as UTF-16: blocks of bytes are decoded, the text is cut into lines."""
    decoder = codecs.getincrementaldecoder(encoding)("replace" if replace else "strict")
    num_bytes, number, pending, start = 0, 1, "", b""
    for block in chain(_blocks(path), [b""]):
        num_bytes += len(block)
        start = start or block[:8]
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            byte = num_bytes - len(error.object) + error.start
            before = error.object[: error.start].decode(encoding, errors="replace")
            value = error.object[error.start]
            raise _invalid_bytes(path, number + before.count("\n"), byte, value, error, encoding, start) from error
        except UnicodeError as error:  # UTF-16 and UTF-32 without a byte-order mark
            raise DataError(f"{path}: not {encoding} ({error}).", decoding_hint(encoding, start)) from error
        pending += text.removeprefix("\ufeff") if num_bytes == len(block) else text
        *lines, pending = pending.split("\n")
        for line in (*lines, pending):
            _check_length(path, number, len(line), max_line_bytes)
        for line in lines:
            yield line.removesuffix("\r"), replace and "\ufffd" in line
        number += len(lines)
    if pending:
        yield pending, replace and "\ufffd" in pending


def _invalid_bytes(
    path: str | Path, line: int, byte: int, value: int, error: UnicodeDecodeError, encoding: str, start: bytes
) -> DataError:
    name = "UTF-8" if encoding == UTF8 else encoding
    message = f"{path}:{line}: byte {byte} (0x{value:02x}) is not {name} ({error.reason})."
    return DataError(message, decoding_hint(encoding, start))


def _byte_lines(path: str | Path, max_line_bytes: int, start: LineStart) -> Iterator[tuple[bytes, bool]]:
    """Each line's bytes without "\n", and whether it ended with one: only the last line may not."""
    parts: list[bytes] = []  # of a line that began in an earlier block
    length = 0  # of `parts`
    number = start[0] + 1
    for block in _blocks(path, start[1]):
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


def _blocks(path: str | Path, offset: int = 0) -> Iterator[bytes]:
    """A file's bytes, decompressed, in blocks of about BLOCK_BYTES; a truncated or damaged file is a DataError."""
    num_bytes = offset
    try:
        for block in _raw_blocks(path, offset):
            num_bytes += len(block)
            yield block
    except DAMAGE as error:
        raise DataError(
            f"{path}: cannot be read past byte {num_bytes:,} of its text ({error or type(error).__name__}).",
            "The file is truncated or damaged; download it again.",
        ) from error


def _raw_blocks(path: str | Path, offset: int) -> Iterator[bytes]:
    file = open_bytes(path)
    try:
        if offset:
            file.seek(offset)
        while block := file.read(BLOCK_BYTES):
            yield block
    finally:
        if str(path) != "-":
            file.close()
