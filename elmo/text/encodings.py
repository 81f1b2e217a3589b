"""Encodings of text files: their names, which of them can be cut into lines as bytes, and hints for wrong ones."""

from __future__ import annotations

import codecs
import functools

from elmo.errors import ConfigError

UTF8 = "utf-8"
UTF8_BOM = codecs.BOM_UTF8
_STATEFUL = ("iso2022", "hz", "utf-7")  # the bytes of a line depend on those before it


@functools.cache
def check_encoding(name: str) -> str:
    """Python's name of a text encoding, the same for all its spellings; a ConfigError for an unknown one.

    utf-8-sig is utf-8, because a byte-order mark is always accepted.
    """
    try:
        "a".encode(name)  # refuses codecs that are not text encodings, such as hex
        codec = codecs.lookup(name)
    except (LookupError, UnicodeError, ValueError):
        codec = None
    if codec is None or codec.incrementaldecoder is None:
        raise ConfigError(
            f"The encoding {name!r} is unknown.", "Expected a name that Python knows, for example latin-1 or utf-16."
        )
    return UTF8 if codec.name == "utf-8-sig" else codec.name


@functools.cache
def has_newline_bytes(encoding: str) -> bool:
    """Whether the byte 0x0a is a line end and nothing else, so that bytes can be cut into lines; not so in UTF-16."""
    try:
        is_ascii = "a\nb".encode(encoding) == b"a\nb"
    except UnicodeError:
        is_ascii = False
    return is_ascii and not encoding.startswith(_STATEFUL)


def decoding_hint(encoding: str, start: bytes) -> str:
    """What to do about a file that begins with the bytes `start` and is not in the encoding."""
    if encoding == UTF8 and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "The file looks like UTF-16. Convert it to UTF-8. --encoding utf-16 reads it as it is."
    other = (
        "Convert the file to UTF-8. --encoding NAME reads another encoding, for example latin-1 or cp1252."
        if encoding == UTF8
        else "The file is in another encoding or damaged. --encoding NAME reads another encoding."
    )
    return f"{other} --errors replace continues with U+FFFD in place of such bytes."
