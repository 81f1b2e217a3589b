"""One bound on the bytes that reading a model may take; it comes from the size of what the user named.

A zip unpacks, the HDF5 file in it decompresses, its word list too: bounds of single formats would multiply. So
`memory_bound` is entered once, with the outermost file or folder, and every reader calls `claim` before it allocates or
unpacks. The peak of a process is at most about three times the bound, because arrays are copied one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import WeightsError

MAX_EXPANSION = 50  # times the size of the outermost file; weights hardly compress, and int8 becomes float32
ALWAYS_ACCEPTED = 16 << 20  # bytes
_MAX_FILES = 100_000  # of a folder whose size is added up


@dataclass
class _Bound:
    source: str
    size: int  # of the outermost file or folder
    claimed: int = 0  # bytes of memory

    @property
    def limit(self) -> int:
        return max(ALWAYS_ACCEPTED, MAX_EXPANSION * self.size)


_current: ContextVar[_Bound | None] = ContextVar("elmo memory bound", default=None)


@contextmanager
def memory_bound(*paths: Path, size: int | None = None) -> Iterator[None]:
    """Bounds what is claimed inside by the size of these files and folders; inside another bound it does nothing.

    `size` replaces the size of a source that is not a file of its own.
    """
    if _current.get() is not None:
        yield
        return
    total = sum(_size_of(path) for path in paths) if size is None else size
    token = _current.set(_Bound(str(paths[-1]), total))
    try:
        yield
    finally:
        _current.reset(token)


def claim(num_bytes: int, source: str | Path) -> None:
    """Raises WeightsError if reading `source` into so many bytes of memory would exceed the bound."""
    bound = _bound()
    bound.claimed += num_bytes
    if bound.claimed > bound.limit:
        raise _too_large(bound, f"{source} declares {num_bytes:,} bytes")


def check_unpacked(num_bytes: int, source: str | Path) -> None:
    """Raises WeightsError if unpacking `source` into so many bytes, on disk, would exceed the bound."""
    bound = _bound()
    if num_bytes > bound.limit:
        raise _too_large(bound, f"{source} unpacks to {num_bytes:,} bytes or more, like a decompression bomb")


def unpacked_limit() -> int:
    """The number of bytes that an archive may unpack to."""
    return _bound().limit


def _bound() -> _Bound:
    bound = _current.get()
    assert bound is not None, "a reader claims memory outside of memory_bound"
    return bound


def _too_large(bound: _Bound, what: str) -> WeightsError:
    total = f", {bound.claimed:,} with what is read already" if bound.claimed else ""
    return WeightsError(
        f"{what}{total}; {bound.source} has {bound.size:,} bytes.",
        f"At most {MAX_EXPANSION} times its size is accepted, or {ALWAYS_ACCEPTED >> 20} MB: the file is damaged, or "
        "it is made to fill the memory.",
    )


def _size_of(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.is_file() else 0
    total = number = 0
    for folder, _, names in os.walk(path):
        for name in names:
            number += 1
            if number > _MAX_FILES:
                return total
            with suppress(OSError):  # another process has removed it
                total += os.stat(os.path.join(folder, name)).st_size
    return total
