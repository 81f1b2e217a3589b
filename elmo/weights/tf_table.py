"""Decodes the two encodings inside a TensorFlow checkpoint index: the sorted table file and protocol-buffer fields.

`tf_index` uses this module. Every length and offset comes from an untrusted file, so each is checked against the real
size before it is used, and any inconsistency is a WeightsError that names the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from elmo.errors import WeightsError
from elmo.weights.crc32c import masked_crc32c

TABLE_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # one byte for the compression, four for the checksum
_MAX_KEY_BYTES = 4096
_MAX_ENTRIES = 1_000_000
_HINT = "The index file is truncated or damaged: copy it again, or save the checkpoint again."


def table_entries(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every entry of a table file, in the file's sorted order; `name` names the file in errors."""
    if len(data) < _FOOTER_BYTES or data[-8:] != TABLE_MAGIC:
        raise WeightsError(f"{name} does not end like a TensorFlow checkpoint index ({len(data)} bytes).", _HINT)
    footer = data[-_FOOTER_BYTES:-8]
    _, _, position = _handle(footer, 0, name)  # the metaindex block, which is empty in checkpoints
    index_offset, index_size, _ = _handle(footer, position, name)
    index = _block(data, index_offset, index_size, name)
    last_end, previous, count = 0, None, 0
    for _, handle in _block_entries(index, name):
        offset, size, _ = _handle(handle, 0, name)
        if offset < last_end:  # valid tables list each block once; repeated blocks could make the loop endless
            raise WeightsError(f"{name}: its blocks overlap or are out of order.", _HINT)
        last_end = offset + size + _TRAILER_BYTES
        for key, value in _block_entries(_block(data, offset, size, name), name):
            if previous is not None and key <= previous:
                raise WeightsError(f"{name}: its names are out of order at {key!r}.", _HINT)
            previous, count = key, count + 1
            if count > _MAX_ENTRIES:
                raise WeightsError(f"{name} lists more than {_MAX_ENTRIES:,} entries.", _HINT)
            yield key, value


def proto_fields(data: bytes, name: str) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value of each field of one message: an int for numeric fields, bytes for the rest."""
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position, name)
        kind = tag & 7
        if kind == 0:
            number, position = read_varint(data, position, name)
            yield tag >> 3, number
            continue
        if kind == 2:
            size, position = read_varint(data, position, name)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise WeightsError(f"{name}: an entry has a field of unknown kind {kind}.", _HINT)
        if size > len(data) - position:
            raise WeightsError(f"{name}: an entry claims {size} bytes but {len(data) - position} are left.", _HINT)
        value = data[position : position + size]
        position += size
        yield tag >> 3, value if kind == 2 else int.from_bytes(value, "little")


def read_varint(data: bytes, position: int, name: str) -> tuple[int, int]:
    """A varint (7 bits per byte, low bits first, at most 64 bits) and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
    raise WeightsError(f"{name}: a number runs past its end.", _HINT)


def _handle(data: bytes, position: int, name: str) -> tuple[int, int, int]:
    offset, position = read_varint(data, position, name)
    size, position = read_varint(data, position, name)
    return offset, size, position


def _block(data: bytes, offset: int, size: int, name: str) -> bytes:
    """The contents of a block, after its checksum is verified."""
    end = offset + size
    if end + _TRAILER_BYTES > len(data) - _FOOTER_BYTES:
        raise WeightsError(f"{name}: a block should be at {offset}..{end}, but the file has {len(data)} bytes.", _HINT)
    stored = int.from_bytes(data[end + 1 : end + _TRAILER_BYTES], "little")
    if masked_crc32c(data[offset : end + 1]) != stored:
        raise WeightsError(f"{name}: the block at byte {offset} does not match its checksum.", _HINT)
    if data[end] == 1:
        raise WeightsError(
            f"{name} is compressed with snappy, which is not supported.",
            "TensorFlow writes checkpoints uncompressed; load and save it once more with tf.train.Saver.",
        )
    if data[end] != 0:
        raise WeightsError(f"{name}: the block at byte {offset} has unknown compression {data[end]}.", _HINT)
    return data[offset:end]


def _block_entries(block: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """The entries of one block; each key is stored as its difference from the previous key."""
    num_restarts = int.from_bytes(block[-4:], "little") if len(block) >= 4 else -1
    end = len(block) - 4 - 4 * num_restarts
    if num_restarts < 0 or end < 0:
        raise WeightsError(f"{name}: a block of {len(block)} bytes claims {num_restarts} restart points.", _HINT)
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position, name)
        unshared, position = read_varint(block, position, name)
        size, position = read_varint(block, position, name)
        if shared > len(key) or unshared + size > end - position:
            raise WeightsError(f"{name}: an entry reaches outside its block.", _HINT)
        if shared + unshared > _MAX_KEY_BYTES:
            raise WeightsError(
                f"{name}: a name of {shared + unshared} bytes, expected at most {_MAX_KEY_BYTES}.", _HINT
            )
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + size]
        position += size
