"""A small writer of TensorFlow checkpoints: tables, their entries, and checkpoints of one data file."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from elmo.weights.crc32c import masked_crc32c
from elmo.weights.tf_table import TABLE_MAGIC


def write_checkpoint(prefix: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """PREFIX.index and PREFIX.data-00000-of-00001 with float32 arrays, and right checksums."""
    data, entries = b"", [(b"", b"\x08\x01")]
    for name in sorted(arrays, key=str.encode):
        content = np.ascontiguousarray(arrays[name], "<f4").tobytes()
        position = {"size": len(content), "offset": len(data), "crc": masked_crc32c(content)}
        entries.append((name.encode(), entry(shape=arrays[name].shape, **position)))
        data += content
    prefix.with_name(prefix.name + ".data-00000-of-00001").write_bytes(data)
    prefix.with_name(prefix.name + ".index").write_bytes(make_table(make_block(entries)))


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def entry(
    *,
    shape: tuple[int, ...],
    size: int,
    offset: int,
    crc: int,
    dtype: int = 1,
    shard: int = 0,
    extra: bytes = b"",
) -> bytes:
    dims = b"".join(b"\x12" + varint(len(varint(d)) + 1) + b"\x08" + varint(d) for d in shape)
    return (
        b"\x08" + varint(dtype) + b"\x12" + varint(len(dims)) + dims + b"\x18" + varint(shard)
        + b"\x20" + varint(offset) + b"\x28" + varint(size) + b"\x35" + struct.pack("<I", crc) + extra
    )  # fmt: skip


def make_block(entries: list[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(b"\x00" + varint(len(key)) + varint(len(value)) + key + value for key, value in entries)
    return body + struct.pack("<II", 0, 1)


def footer(offset: int, size: int) -> bytes:
    return (varint(0) + varint(0) + varint(offset) + varint(size)).ljust(40, b"\0") + TABLE_MAGIC


def make_table(block: bytes, compression: int = 0, blocks_listed: int = 1) -> bytes:
    def with_checksum(content: bytes, kind: int = 0) -> bytes:
        content += bytes([kind])
        return content + struct.pack("<I", masked_crc32c(content))

    first = with_checksum(block, compression)
    index = make_block([(b"z" * (k + 1), varint(0) + varint(len(block))) for k in range(blocks_listed)])
    return first + with_checksum(index) + footer(len(first), len(index))
