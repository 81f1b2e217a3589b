"""Parses the index of a TensorFlow checkpoint: type, shape and byte position of every tensor.

`tf_table` supplies the raw entries of the index, and `tf_checkpoint` reads the bytes. Each entry is a small
protocol-buffer message; this module checks that its sizes are consistent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from elmo.errors import WeightsError
from elmo.weights.tf_table import proto_fields, table_entries

_MAX_INDEX_BYTES = 64 << 20
_MAX_SHARDS = 10_000
DAMAGED = "The checkpoint is truncated or damaged: copy all its files again."

# TensorFlow's type number -> (type name, numpy type code). bfloat16 is converted to float32 after reading.
DTYPES: dict[int, tuple[str, str]] = {
    1: ("float32", "f4"),
    2: ("float64", "f8"),
    3: ("int32", "i4"),
    4: ("uint8", "u1"),
    5: ("int16", "i2"),
    6: ("int8", "i1"),
    9: ("int64", "i8"),
    10: ("bool", "?"),
    14: ("bfloat16", "u2"),
    17: ("uint16", "u2"),
    19: ("float16", "f2"),
    22: ("uint32", "u4"),
    23: ("uint64", "u8"),
}


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """Type, shape and position of one tensor."""

    type_number: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int  # bytes
    checksum: int
    sliced: bool  # saved in slices by a variable partitioner

    @property
    def type_name(self) -> str:
        return DTYPES[self.type_number][0] if self.type_number in DTYPES else f"type {self.type_number}"


def read_index(path: Path) -> tuple[int, Literal["<", ">"], dict[str, IndexEntry]]:
    """The number of data files, the byte order ("<" or ">"), and every named tensor."""
    try:
        if path.stat().st_size > _MAX_INDEX_BYTES:
            raise WeightsError(f"{path} has {path.stat().st_size:,} bytes; expected at most {_MAX_INDEX_BYTES:,}.")
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error}).") from error
    name = str(path)
    header: tuple[int, Literal["<", ">"]] | None = None
    entries: dict[str, IndexEntry] = {}
    for key, value in table_entries(data, name):
        if key == b"":
            header = _parse_header(value, name)
        elif header is None:
            raise WeightsError(f"{name} has no header: it is not the index of a V2 checkpoint.", DAMAGED)
        elif not key.startswith(b"\x00"):  # keys with \0 are slices of a tensor that has its own entry
            try:
                entry_name = key.decode("utf-8")
            except UnicodeDecodeError as error:
                raise WeightsError(f"{name}: {key!r} is not a variable name.", DAMAGED) from error
            entries[entry_name] = _parse_entry(value, f"{name}: '{entry_name}'", header[0])
    if header is None:
        raise WeightsError(f"{name} is empty.", DAMAGED)
    return *header, entries


def _parse_header(value: bytes, name: str) -> tuple[int, Literal["<", ">"]]:
    num_shards, big_endian = 0, 0
    for field, content in proto_fields(value, name):
        if field == 1 and isinstance(content, int):
            num_shards = content
        elif field == 2 and isinstance(content, int):
            big_endian = content
    if not 1 <= num_shards <= _MAX_SHARDS or big_endian not in (0, 1):
        raise WeightsError(f"{name}: its header names {num_shards} data files and byte order {big_endian}.", DAMAGED)
    return num_shards, ">" if big_endian else "<"


def _parse_entry(value: bytes, name: str, num_shards: int) -> IndexEntry:
    numbers = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}  # type, shard, offset, size, checksum
    shape: tuple[int, ...] = ()
    sliced = False
    for field, content in proto_fields(value, name):
        if field == 2 and isinstance(content, bytes):
            shape = _parse_shape(content, name)
        elif field == 7:
            sliced = True
        elif field in numbers and isinstance(content, int):
            numbers[field] = content
    entry = IndexEntry(
        type_number=numbers[1],
        shape=shape,
        shard=numbers[3],
        offset=numbers[4],
        size=numbers[5],
        checksum=numbers[6],
        sliced=sliced,
    )
    if entry.shard >= num_shards:
        raise WeightsError(f"{name} is in data file {entry.shard} of {num_shards}.", DAMAGED)
    if entry.type_number in DTYPES and not sliced:
        expected = np.dtype(DTYPES[entry.type_number][1]).itemsize
        for dim in shape:
            expected *= dim
        if expected != entry.size:
            raise WeightsError(f"{name} of shape {shape} needs {expected} bytes; its entry says {entry.size}.", DAMAGED)
    return entry


def _parse_shape(value: bytes, name: str) -> tuple[int, ...]:
    shape: list[int] = []
    for field, content in proto_fields(value, name):
        if field == 2 and isinstance(content, bytes):
            sizes = [size for number, size in proto_fields(content, name) if number == 1]
            shape.append(sizes[-1] if sizes and isinstance(sizes[-1], int) else 0)
        elif field == 3 and content:
            raise WeightsError(f"{name} has no known shape.", DAMAGED)
    if len(shape) > 16 or any(size >= 1 << 40 for size in shape):
        raise WeightsError(f"{name} claims the shape {tuple(shape[:16])}.", DAMAGED)
    return tuple(shape)
