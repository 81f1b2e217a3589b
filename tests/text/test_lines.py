"""Lines of text files: line ends, invalid UTF-8, damaged and hostile files, bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import logging
import lzma
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from elmo.errors import ConfigError, DataError
from elmo.text.lines import BLOCK_BYTES, read_lines

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".txt": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress(data),
}
TEXT = "".join(f"line {i} of häppy text 😀\n" for i in range(20_000)).encode()


def write(folder: Path, data: bytes, suffix: str = ".txt") -> Path:
    path = folder / f"file{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n\r\n", ["a", "b", ""]),
        (b"a\rb\n\rc\r", ["a\rb", "\rc\r"]),
        (b"a\r\r\nb", ["a\r", "b"]),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        (b"\xef\xbb\xbf\r\nx", ["", "x"]),
        (b"nul \x00 in\n", ["nul \x00 in"]),
    ],
)
def test_only_newlines_end_lines(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path, data))) == lines


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")).map(lambda line: line.rstrip("\r"))))
@example(["\ufeff" * 2, ""])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_written_lines_are_read_back(tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + "".join(line + "\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_read_by_their_suffix(tmp_path: Path, suffix: str) -> None:
    assert list(read_lines(write(tmp_path, COMPRESS[suffix](TEXT), suffix))) == TEXT.decode().splitlines()


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_files_of_several_streams_are_read_completely(tmp_path: Path, suffix: str) -> None:
    data = COMPRESS[suffix](b"a\nb") + COMPRESS[suffix](b"c\nd\n")
    assert list(read_lines(write(tmp_path, data, suffix))) == ["a", "bc", "d"]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_an_empty_file_has_no_lines(tmp_path: Path, suffix: str) -> None:
    assert list(read_lines(write(tmp_path, COMPRESS[suffix](b""), suffix))) == []


@pytest.mark.parametrize(
    "length", [0, 1, BLOCK_BYTES - 2, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]
)
def test_lines_may_cross_blocks(tmp_path: Path, length: int) -> None:
    path = write(tmp_path, b"x" * length + "é\r\nz".encode())
    assert list(read_lines(path)) == ["x" * length + "é", "z"]


def test_error_for_invalid_utf8_names_line_and_byte(tmp_path: Path) -> None:
    good = b"ok line\n" * 12_344
    path = write(tmp_path, good + b"caf\xe9 here\nmore\n")
    lines = read_lines(path)
    assert [next(lines) for _ in range(12_344)] == ["ok line"] * 12_344
    with pytest.raises(DataError) as error_info:
        next(lines)
    assert f"{path}:12345: byte {len(good) + 3} " in error_info.value.message


def test_byte_numbers_include_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xef\xbb\xbfab\xff\n")
    with pytest.raises(DataError, match=r"file.txt:1: byte 5 "):
        list(read_lines(path))
    path = write(tmp_path, b"\xef\xbb\xbfa\r\nb\n\xff")
    with pytest.raises(DataError, match=r"file.txt:3: byte 8 "):
        list(read_lines(path))


def test_replacement_logs_one_warning_with_the_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, b"ok\ncaf\xe9\nok\n\xff\xfe x\n\xed\xa0\x80\n")
    with caplog.at_level(logging.WARNING):
        lines = list(read_lines(path, errors="replace"))
    assert lines == ["ok", "caf\ufffd", "ok", "\ufffd\ufffd x", "\ufffd\ufffd\ufffd"]
    assert len(caplog.records) == 1
    assert caplog.records[0].args == (path, 3, "utf-8", 2)  # three lines, the first is line 2


def test_unknown_errors_mode_is_refused_immediately(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_lines(tmp_path, errors="ignore")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("fraction", [0.99, 0.5])
def test_error_for_a_truncated_file_names_the_byte(tmp_path: Path, suffix: str, fraction: float) -> None:
    data = COMPRESS[suffix](TEXT)
    path = write(tmp_path, data[: int(len(data) * fraction)], suffix)
    with pytest.raises(DataError, match=r"past byte [\d,]+ of its text"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_damaged_file_is_a_data_error(tmp_path: Path, suffix: str) -> None:
    data = bytearray(COMPRESS[suffix](os.urandom(50_000).hex().encode()))
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    with pytest.raises(DataError):
        list(read_lines(write(tmp_path, bytes(data), suffix)))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_an_uncompressed_file_with_a_wrong_suffix_is_a_data_error(tmp_path: Path, suffix: str) -> None:
    if suffix == ".zst":
        pytest.importorskip("zstandard")
    with pytest.raises(DataError, match="past byte 0"):
        list(read_lines(write(tmp_path, b"just text\n" * 10, suffix)))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_decompression_bomb_is_refused_within_bounded_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb{suffix}"
    open_file = gzip.open if suffix == ".gz" else pytest.importorskip("zstandard").open
    zeros = bytes(1 << 20)
    with open_file(path, "wb") as file:
        for _ in range(256):
            file.write(zeros)
    tracemalloc.start()
    with pytest.raises(DataError, match="longer than 8,388,608 bytes"):
        list(read_lines(path, max_line_bytes=8 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_a_long_file_of_short_lines_streams(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(b"some words\n" * 200_000, compresslevel=1), ".gz")
    tracemalloc.start()
    count = sum(1 for _ in read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200_000
    assert peak < 32 << 20


def test_a_line_of_the_maximum_length_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, b"short\n" + b"x" * 100 + b"\nend")
    assert [len(line) for line in read_lines(path, max_line_bytes=100)] == [5, 100, 3]
    with pytest.raises(DataError, match=r"file.txt:2: the line is longer than 99 bytes"):
        list(read_lines(path, max_line_bytes=99))


def test_a_line_added_while_reading_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, b"a\n" * BLOCK_BYTES)
    lines = read_lines(path)
    next(lines)
    with open(path, "ab") as file:
        file.write(b"last\n")
    assert list(lines)[-1] == "last"


def test_path_that_is_not_a_file_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path, tmp_path / "absent.txt", tmp_path / "absent.gz", tmp_path / "loop"):
        with pytest.raises(DataError):
            list(read_lines(path))


def test_missing_zst_is_a_data_error(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    with pytest.raises(DataError):
        list(read_lines(tmp_path / "absent.zst"))


def test_standard_input_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO("ä\nb".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(read_lines("-")) == ["ä", "b"]
    assert not stdin.buffer.closed
