"""Small files that unpack to much more: they are refused while little memory is used."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tracemalloc
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo.errors import DataError, WeightsError
from elmo.files import open_bytes
from elmo.weights.formats import read_model
from elmo.weights.hdf5 import read_shapes
from elmo.weights.word_list import read_words

MEGABYTE = 1 << 20


def refusal(path: Path, max_words: int) -> tuple[str, int]:
    """The message of the error for a word list, and the most bytes that were allocated."""
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError) as caught:
            read_words(path, max_words)
        return caught.value.message, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", [b"ab\n", b"\n", b"a", b"word\n" * 1000], ids=["words", "blank", "no end", "many"])
@pytest.mark.parametrize("suffix", [".xz", ".gz"])
def test_a_word_list_that_unpacks_to_much_more_is_refused(tmp_path: Path, line: bytes, suffix: str) -> None:
    path = tmp_path / f"vocab.txt{suffix}"
    data = line * (24 * MEGABYTE // len(line))
    path.write_bytes(lzma.compress(data, preset=1) if suffix == ".xz" else gzip.compress(data, compresslevel=9))
    message, peak = refusal(path, max_words=1000)
    assert str(path) in message
    assert peak < 8 * MEGABYTE


def test_a_word_list_of_a_model_of_unknown_size_is_bounded_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt.xz"
    path.write_bytes(lzma.compress(b"some words\n" * (4 * MEGABYTE), preset=1))
    with pytest.raises(WeightsError, match=r"bytes of words|times its size"):
        read_words(path)


def test_a_word_list_is_bounded_by_the_rows_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("one\ntwo\n!!!MAXTERMID\nthree\n")
    assert read_words(path, 3) == ("one", "two", "three")
    with pytest.raises(WeightsError, match="more than 2 words"):
        read_words(path, 2)


def test_a_word_longer_than_any_word_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"short\n" + b"x" * 70_000 + b"\n")
    with pytest.raises(WeightsError, match=r"vocab.txt:2: .* bytes"):
        read_words(path)


def test_an_xz_file_that_asks_for_a_huge_dictionary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    data = bytearray(lzma.compress(b"text\n", filters=filters))
    size = data.index(bytes([0x21, 0x01])) + 2  # the filter LZMA2, one byte of properties: the dictionary's size
    data[size] = 40  # 4 GiB
    header = data[12 : 12 + (data[12] + 1) * 4]
    data[12 + len(header) - 4 : 12 + len(header)] = zlib.crc32(header[:-4]).to_bytes(4, "little")
    path.write_bytes(data)
    with open_bytes(path) as file, pytest.raises((DataError, lzma.LZMAError), match=r"[Mm]emory"):
        file.read()


def test_xz_files_of_several_streams_and_truncated_ones_are_read_as_such(tmp_path: Path) -> None:
    path = tmp_path / "text.xz"
    path.write_bytes(lzma.compress(b"one\n") + lzma.compress(b"two\n") + bytes(4))
    with open_bytes(path) as file:
        assert file.read() == b"one\ntwo\n"
    path.write_bytes(lzma.compress(b"one\n" * 1000)[:-10])
    with open_bytes(path) as file, pytest.raises(EOFError):
        file.read()


def hdf5_file(path: Path, *, chunk: tuple[int, int], deflate: int) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(chunk)
    for _ in range(deflate):
        properties.set_deflate(9)
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((8, 8), (h5py.h5s.UNLIMITED,) * 2)
        dataset = h5py.h5d.create(file.id, b"CNN_proj", h5py.h5t.IEEE_F32LE, space, properties)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros((8, 8), np.float32))


@pytest.mark.parametrize(
    ("chunk", "deflate", "reason"),
    [((4096, 2048), 1, "chunks of 33,554,432 bytes"), ((8, 8), 2, "more than once"), ((4096, 2048), 2, "bytes|once")],
)
def test_a_dataset_whose_chunks_unpack_to_more_than_it_holds_is_refused(
    tmp_path: Path, chunk: tuple[int, int], deflate: int, reason: str
) -> None:
    path = tmp_path / "weights.hdf5"
    hdf5_file(path, chunk=chunk, deflate=deflate)
    with pytest.raises(WeightsError, match=reason):
        read_shapes(path)


def test_compressed_datasets_of_their_own_size_are_accepted(tmp_path: Path) -> None:
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        file.create_dataset("a", data=np.zeros((30, 7), np.float32), compression="gzip", shuffle=True, fletcher32=True)
    (tmp_path / "weights.hdf5").write_bytes(image.getvalue())
    assert read_shapes(tmp_path / "weights.hdf5") == {"a": (30, 7)}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs in folders")
@pytest.mark.parametrize("name", ["vocab.txt", "options.json", "weights.hdf5", "README.md", "model.safetensors"])
@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_a_fifo_or_device_in_a_model_folder_is_refused_and_not_opened(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "options.json").write_text("{}")
    (tmp_path / "weights.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n")
    (tmp_path / name).unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(WeightsError, match=f"{name} is not a regular file"):
        read_model(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs in folders")
def test_fifos_that_are_named_one_by_one_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "options.json").write_text("{}")
    for pair in ((tmp_path / "options.json", tmp_path / "fifo"), (tmp_path / "fifo", tmp_path / "options.json")):
        with pytest.raises(WeightsError, match="fifo is not a regular file"):
            read_model(*pair)
    with pytest.raises(WeightsError, match="fifo is not a regular file"):
        read_words(tmp_path / "fifo")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_a_damaged_compressed_word_list_is_an_error_and_not_a_shorter_list(
    tmp_path: Path, suffix: str, damage: str
) -> None:
    """A truncated .zst was read as a shorter list of words, and a changed one was an internal error."""
    path = tmp_path / f"vocab.txt{suffix}"
    words = np.random.default_rng(0).integers(0, 1 << 60, 20_000)
    data = bytearray(compress("".join(f"{word:x}\n" for word in words).encode(), suffix))
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(40) if damage == "changed" else b""
    path.write_bytes(data[:-40] if damage == "truncated" else data)
    with pytest.raises(WeightsError, match="cannot be read as a word list"):
        read_words(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_compressed_files_of_several_streams_are_read_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(compress(b"one\n", suffix) + compress(b"two\n" * 100_000, suffix))
    with open_bytes(path) as file:
        assert file.read() == b"one\n" + b"two\n" * 100_000


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".zst":
        return bytes(pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress(data))
    return {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix](data)
