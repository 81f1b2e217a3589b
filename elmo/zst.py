"""Reading of .zst files: a damaged file is an OSError and a truncated one an EOFError, as with gzip.

zstandard's own reader ends without an error where a file is cut off, and its errors are of its own kind.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

_INPUT_BYTES = 1024  # at a time; at most 32 MB when decompressed, also for hostile files: 128 KB per block of 4 bytes
_BUFFER_BYTES = 1 << 16


def open_zst(path: Path, zstandard: Any) -> IO[bytes]:
    """The decompressed bytes of all frames of a file; `zstandard` is the module."""
    return io.BufferedReader(_ZstReader(path, zstandard), _BUFFER_BYTES)


class _ZstReader(io.RawIOBase):
    def __init__(self, path: Path, zstandard: Any) -> None:
        self._zstandard = zstandard
        self._file = open(path, "rb")  # noqa: SIM115 (closed in close)
        self._frame: Any = None  # the decoder inside a frame, None between two frames
        self._unpacked = memoryview(b"")  # decompressed, but not yet read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked:
            data = self._file.read(_INPUT_BYTES)
            if not data and self._frame is not None:
                raise EOFError("the last frame has no end")
            if not data:
                return 0
            self._unpacked = memoryview(self._decompress(data))
        count = min(len(buffer), len(self._unpacked))
        buffer[:count] = self._unpacked[:count]
        self._unpacked = self._unpacked[count:]
        return count

    def _decompress(self, data: bytes) -> bytes:
        blocks = []
        try:
            while data:
                self._frame = self._frame or self._zstandard.ZstdDecompressor().decompressobj()
                blocks.append(self._frame.decompress(data))
                data = self._frame.unused_data if self._frame.eof else b""
                if self._frame.eof:
                    self._frame = None
        except self._zstandard.ZstdError as error:
            raise OSError(str(error)) from error
        return b"".join(blocks)

    def close(self) -> None:
        self._file.close()
        super().close()
