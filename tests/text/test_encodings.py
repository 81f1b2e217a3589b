"""Text files in other encodings than UTF-8: the same lines, errors that name line and byte, and names of encodings."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elmo.errors import ConfigError, DataError
from elmo.text.encodings import check_encoding, has_newline_bytes
from elmo.text.lines import BLOCK_BYTES, read_lines

LINES = [
    "Zwölf Boxkämpfer jagen",
    "",
    "Viktor quer über den großen Sylter Deich .",
    "\u010a" * 3,
]  # U+010A has a byte 0x0a
JAPANESE = ["日本語の文。", "", "二行目 \\ ~"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "utf-7", "gb18030"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_unicode_encodings_give_the_same_lines(tmp_path: Path, encoding: str, end: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("".join(line + end for line in LINES).encode(encoding))
    assert list(read_lines(path, encoding=encoding)) == LINES
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(end.join(LINES).encode(encoding)))  # the last line has no end
    assert list(read_lines(path, encoding=encoding)) == LINES


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "cp037", "mac_roman"])
def test_single_byte_encodings_give_the_same_lines(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\n".join(LINES[:3]).encode(encoding))
    assert list(read_lines(path, encoding=encoding)) == LINES[:3]


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "iso2022_jp", "cp932"])
def test_japanese_encodings_give_the_same_lines(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\n".join(JAPANESE).encode(encoding))
    assert list(read_lines(path, encoding=encoding)) == JAPANESE


def test_utf16_lines_may_cross_blocks(tmp_path: Path) -> None:
    lines = ["x" * (BLOCK_BYTES // 3 + k) + "é😀" for k in range(9)]
    path = tmp_path / "text.txt"
    path.write_bytes("\n".join(lines).encode("utf-16"))
    assert list(read_lines(path, encoding="utf-16")) == lines
    with pytest.raises(DataError, match="longer than 1,000 bytes"):
        list(read_lines(path, encoding="utf-16", max_line_bytes=1000))


def test_a_byte_order_mark_is_dropped_and_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    for encoding in ("utf-16-le", "utf-16-be", "utf-16", "utf-8"):
        path.write_bytes("\ufeffa\n\ufeffb".encode(encoding))
        assert list(read_lines(path, encoding=encoding)) == ["a", "\ufeffb"]
        path.write_bytes("\ufeff".encode(encoding))
        assert list(read_lines(path, encoding=encoding)) == []
        path.write_bytes(b"")
        assert list(read_lines(path, encoding=encoding)) == []


def test_utf8_with_a_byte_order_mark_is_not_read_as_latin1(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeffgrün\n".encode())
    with pytest.raises(DataError, match="is UTF-8, as its byte-order mark says, and not iso8859-1"):
        list(read_lines(path, encoding="latin-1"))


def test_errors_name_line_and_byte_in_every_encoding(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"fine\nnot \x81 fine\n")
    with pytest.raises(DataError, match=r"text\.txt:2: byte 9 \(0x81\) is not cp1252"):
        list(read_lines(path, encoding="cp1252"))
    assert list(read_lines(path, encoding="cp1252", errors="replace")) == ["fine", "not \ufffd fine"]
    good = "ok\n" * BLOCK_BYTES
    path.write_bytes(good.encode("utf-16-le") + b"a\0\x00\xdcb\0\n\0")
    with pytest.raises(
        DataError, match=rf"text\.txt:{BLOCK_BYTES + 1}: byte {6 * BLOCK_BYTES + 2} \(0x00\) is not utf"
    ):
        list(read_lines(path, encoding="utf-16-le"))


def test_utf16_without_a_byte_order_mark_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("abc\n".encode("utf-16-be"))
    with pytest.raises(DataError, match="not utf-16"):
        list(read_lines(path, encoding="utf-16"))


@pytest.mark.parametrize(
    ("data", "hint"), [(b"caf\xe9\n", "--encoding NAME"), ("café\n".encode("utf-16"), "--encoding utf-16")]
)
def test_hint_of_the_decoding_error_names_the_flag(tmp_path: Path, data: bytes, hint: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    with pytest.raises(DataError, match="is not UTF-8") as error:
        list(read_lines(path))
    assert hint in error.value.hint


def test_names_of_encodings() -> None:
    assert check_encoding("latin-1") == check_encoding("ISO-8859-1") == check_encoding("l1")
    assert check_encoding("UTF8") == check_encoding("utf-8-sig") == "utf-8"
    assert has_newline_bytes("utf-8")
    assert not has_newline_bytes("utf-16")
    for name in ("latn-1", "hex", "rot13", "", "undefined", "a\0b"):
        with pytest.raises(ConfigError, match="is unknown"):
            check_encoding(name)
