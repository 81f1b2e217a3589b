"""Reading of .xz files in bounded memory: a file cannot ask for a dictionary of gigabytes. Used by `elmo.files`."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import IO, Any

MEMORY_LIMIT = 256 << 20  # of the decoder; xz -9 needs 65 MiB
_BLOCK_BYTES = 1 << 16


def open_xz(path: Path) -> IO[bytes]:
    """The decompressed bytes of all streams of a file."""
    return io.BufferedReader(_XzReader(path), _BLOCK_BYTES)


class _XzReader(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (closed in close)
        self._decoder = lzma.LZMADecompressor(memlimit=MEMORY_LIMIT)
        self._is_inside = False  # whether the current stream has begun

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            data = b""
            if self._decoder.needs_input and not (data := self._file.read(_BLOCK_BYTES)) and not self._is_inside:
                return 0
            if self._decoder.needs_input and not data:
                raise EOFError("the file ends before the end of its last stream")
            data = data if self._is_inside else data.lstrip(b"\0")  # padding between streams
            self._is_inside = self._is_inside or bool(data)
            unpacked = self._decoder.decompress(data, len(buffer)) if self._is_inside else b""
            if self._decoder.eof:
                self._file.seek(-len(self._decoder.unused_data), io.SEEK_CUR)
                self._decoder, self._is_inside = lzma.LZMADecompressor(memlimit=MEMORY_LIMIT), False
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)

    def close(self) -> None:
        self._file.close()
        super().close()
