"""CRC-32C of large buffers in numpy: the checksum that TensorFlow stores for every block and tensor.

A CRC is linear over bits. So a buffer is split into equal lanes that advance together, one 4-byte word per step, and
the results of the lanes are combined in a tree: crc(a + b) = advance(crc(a), len(b)) ^ crc(b). The speed is several
hundred MB per second.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
_LANE_WORDS = 256  # 4-byte words per lane
_CHUNK = 4096 * _LANE_WORDS * 4  # bytes per step: 4096 lanes fit in the processor's cache
_MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes | bytearray | memoryview | np.ndarray) -> int:
    """The CRC-32C of the bytes of `data`."""
    view = np.frombuffer(data, dtype=np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view(np.uint8)
    state = 0xFFFFFFFF
    for start in range(0, view.size, _CHUNK):
        state = _advance(state, view[start : start + _CHUNK])
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | bytearray | memoryview | np.ndarray) -> int:
    """The CRC-32C as TensorFlow and leveldb store it: rotated and offset, so that data may contain its own CRC."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _advance(state: int, data: np.ndarray) -> int:
    """The register after `data` (at most one chunk), starting from the register `state`."""
    if data.size < _LANE_WORDS * 4:  # less than one lane
        table = _byte_list()
        for byte in data.tolist():
            state = table[(state ^ byte) & 0xFF] ^ state >> 8
        return state
    # leading zero bytes do not change a zero register; starting at `state` equals xoring it into the first four bytes
    num_lanes = -(-data.size // (_LANE_WORDS * 4))
    padded = np.zeros(num_lanes * _LANE_WORDS * 4, dtype=np.uint8)
    first = padded.size - data.size
    padded[first:] = data
    padded[first : first + 4] ^= np.frombuffer(state.to_bytes(4, "little"), dtype=np.uint8)
    words = np.ascontiguousarray(padded.view("<u4").reshape(num_lanes, _LANE_WORDS).T)  # (words, lanes)
    near, far = _word_tables()
    lanes = np.zeros(num_lanes, dtype=np.uint32)
    for word in words:
        lanes ^= word
        lanes = far.take(lanes & 0xFFFF) ^ near.take(lanes >> 16)
    level = 0
    while lanes.size > 1:
        if lanes.size % 2:
            lanes = np.concatenate([np.zeros(1, dtype=np.uint32), lanes])
        lanes = _apply(_lane_operator(level), lanes[0::2]) ^ lanes[1::2]
        level += 1
    return int(lanes[0])


@cache
def _byte_table() -> np.ndarray:
    """The register after each byte value, from a zero register, (256,)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


@cache
def _byte_list() -> list[int]:
    return [
        int(entry) for entry in _byte_table()
    ]  # Python ints, because indexing single elements of numpy arrays is slow


@cache
def _word_tables() -> tuple[np.ndarray, np.ndarray]:
    """Registers after each 16-bit half of a word: the upper after two bytes, the lower after four; each (65536,)."""
    table = _byte_table()
    near = np.arange(65536, dtype=np.uint32)
    for _ in range(2):
        near = table[near & 0xFF] ^ near >> 8
    far = near
    for _ in range(2):
        far = table[far & 0xFF] ^ far >> 8
    return near, far


@cache
def _lane_operator(level: int) -> np.ndarray:
    """Tables that advance a register over 2**level lanes of zero bytes, one per byte of the register, (4, 256)."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if level:
        half = _lane_operator(level - 1)
        columns = _apply(half, _apply(half, bits))
    else:
        near, far = _word_tables()
        columns = bits
        for _ in range(_LANE_WORDS):
            columns = far[columns & 0xFFFF] ^ near[columns >> 16]
    tables = np.zeros((4, 256), dtype=np.uint32)
    values = np.arange(256)
    for bit in range(32):
        tables[bit // 8, (values >> bit % 8 & 1).astype(bool)] ^= columns[bit]
    return tables


def _apply(operator: np.ndarray, registers: np.ndarray) -> np.ndarray:
    first, second, third, fourth = operator
    low = first[registers & 0xFF] ^ second[registers >> 8 & 0xFF]
    joined: np.ndarray = low ^ third[registers >> 16 & 0xFF] ^ fourth[registers >> 24]
    return joined
