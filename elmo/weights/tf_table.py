"""The two encodings inside a TensorFlow checkpoint index: the sorted table file and protocol-buffer fields.

`tf_checkpoint` stands on this. Every length and offset here comes from a file nobody vouches for, so each is checked
against what is really there before it is used, and anything odd is a WeightsError that names the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from elmo.errors import WeightsError
from elmo.weights.crc32c import masked_crc32c

TABLE_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # one byte that names the compression, four of checksum
_MAX_KEY_BYTES = 4096
_MAX_ENTRIES = 1_000_000
_HINT = "The index file is cut short or damaged: copy it again, or save the checkpoint again."


def table_entries(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every entry of a table file, in the file's sorted order; `name` is for messages."""
    if len(data) < _FOOTER_BYTES or data[-8:] != TABLE_MAGIC:
        raise WeightsError(f"{name} does not end like a TensorFlow checkpoint index ({len(data)} bytes).", _HINT)
    footer = data[-_FOOTER_BYTES:-8]
    _, _, position = _handle(footer, 0, name)  # the metaindex block, which checkpoints leave empty
    index_offset, index_size, _ = _handle(footer, position, name)
    index = _block(data, index_offset, index_size, name)
    floor, previous, count = 0, None, 0
    for _, handle in _block_entries(index, name):
        offset, size, _ = _handle(handle, 0, name)
        if offset < floor:  # true tables never visit a block twice; one that does could be made to run for ever
            raise WeightsError(f"{name}: its blocks overlap or are out of order.", _HINT)
        floor = offset + size + _TRAILER_BYTES
        for key, value in _block_entries(_block(data, offset, size, name), name):
            if previous is not None and key <= previous:
                raise WeightsError(f"{name}: its names are out of order at {key!r}.", _HINT)
            previous, count = key, count + 1
            if count > _MAX_ENTRIES:
                raise WeightsError(f"{name} lists more than {_MAX_ENTRIES:,} entries.", _HINT)
            yield key, value


def proto_fields(data: bytes, name: str) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value of each field of one message: an int for the number kinds, bytes for the rest."""
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
            raise WeightsError(f"{name}: an entry claims {size} bytes where {len(data) - position} are left.", _HINT)
        value = data[position : position + size]
        position += size
        yield tag >> 3, value if kind == 2 else int.from_bytes(value, "little")


def read_varint(data: bytes, position: int, name: str) -> tuple[int, int]:
    """A number of 7 bits a byte, low bits first, and the position after it; at most 64 bits."""
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
    """The contents of a block after its checksum was found right."""
    end = offset + size
    if end + _TRAILER_BYTES > len(data) - _FOOTER_BYTES:
        raise WeightsError(f"{name}: a block is said to lie at {offset}..{end}, the file has {len(data)} bytes.", _HINT)
    stored = int.from_bytes(data[end + 1 : end + _TRAILER_BYTES], "little")
    if masked_crc32c(data[offset : end + 1]) != stored:
        raise WeightsError(f"{name}: the block at byte {offset} does not match its checksum.", _HINT)
    if data[end] == 1:
        raise WeightsError(
            f"{name} is compressed with snappy, which is not read here.",
            "TensorFlow writes checkpoints uncompressed; load and save it once more with tf.train.Saver.",
        )
    if data[end] != 0:
        raise WeightsError(f"{name}: the block at byte {offset} has unknown compression {data[end]}.", _HINT)
    return data[offset:end]


def _block_entries(block: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """The entries of one block: each key stores only what differs from the one before it."""
    num_restarts = int.from_bytes(block[-4:], "little") if len(block) >= 4 else -1
    end = len(block) - 4 - 4 * num_restarts
    if num_restarts < 0 or end < 0:
        raise WeightsError(f"{name}: a block of {len(block)} bytes claims {num_restarts} restart points.", _HINT)
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position, name)
        fresh, position = read_varint(block, position, name)
        size, position = read_varint(block, position, name)
        if shared > len(key) or fresh + size > end - position:
            raise WeightsError(f"{name}: an entry reaches outside its block.", _HINT)
        if shared + fresh > _MAX_KEY_BYTES:
            raise WeightsError(f"{name}: a name of {shared + fresh} bytes, at most {_MAX_KEY_BYTES} make sense.", _HINT)
        key = key[:shared] + block[position : position + fresh]
        position += fresh
        yield key, block[position : position + size]
        position += size
