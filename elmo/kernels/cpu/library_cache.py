"""The cache of compiled kernels as untrusted storage: a library is loaded only if its checksum is right and it is ours.

    <cache>/kernels/<level>-<digest>/kernels.so
    <cache>/kernels/<level>-<digest>/kernels.so.sha256    "<hex>  <level>-<digest>/kernels.so"

A library is code that this process runs, and a damaged one ends the process. So owner and permissions of every folder
from the cache down and of both files are checked on open descriptors, the library is read once, and a private copy of
exactly the bytes with the right checksum is loaded. What happens to the files afterwards has no effect.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

LIBRARY, CHECKSUM = "kernels.so", "kernels.so.sha256"
_MAX_BYTES = 64 << 20  # of a library; ours have less than a megabyte
_descriptors: list[int] = []  # of loaded copies; they stay open, because the system identifies a library by its path


class Untrusted(Exception):
    """Another user could have written a file or folder of the cache; the message names it, in one line."""


def checksum_line(folder_name: str, data: bytes) -> str:
    """The content of the checksum file. It names the folder, so that a library of another version does not pass."""
    return f"{hashlib.sha256(data).hexdigest()}  {folder_name}/{LIBRARY}\n"


def read_library(folder: Path) -> bytes | None:
    """The library in `folder`, whose grandparent is the cache; None: it is missing, damaged or of another version."""
    try:
        with _opened_folder(folder) as descriptor:
            data = _read(descriptor, folder / LIBRARY)
            expected = _read(descriptor, folder / CHECKSUM)
    except FileNotFoundError:
        return None
    return data if expected == checksum_line(folder.name, data).encode() else None


def check_folders(folder: Path) -> None:
    """Raises Untrusted if another user could have written to the cache; the last folder need not exist."""
    try:
        with _opened_folder(folder):
            pass
    except FileNotFoundError:
        return


def load_bytes(data: bytes) -> ctypes.CDLL:
    """Loads a shared library from memory."""
    if not hasattr(os, "memfd_create"):  # macOS
        return _load_from_file(data)
    try:
        descriptor = os.memfd_create("elmo-kernels")
    except OSError:  # the system forbids it
        return _load_from_file(data)
    _descriptors.append(descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    path = f"/proc/self/fd/{descriptor}"
    return ctypes.CDLL(path) if os.path.exists(path) else _load_from_file(data)


def _load_from_file(data: bytes) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="elmo-") as folder:  # for its owner only
        path = Path(folder, LIBRARY)
        path.write_bytes(data)
        return ctypes.CDLL(str(path))


@contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    """The descriptor of a folder of the cache, opened step by step, every step checked. The cache may be a link."""
    cache = folder.parent.parent
    with ExitStack() as stack:
        descriptor = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, descriptor)
        _check(cache, os.fstat(descriptor))
        for path in (folder.parent, folder):
            descriptor = _open_no_link(path, os.O_DIRECTORY, descriptor)
            stack.callback(os.close, descriptor)
            _check(path, os.fstat(descriptor))
        yield descriptor


def _open_no_link(path: Path, flags: int, parent: int) -> int:
    if stat.S_ISLNK(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
        raise Untrusted(f"{path} is a symbolic link")
    return os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=parent)


def _read(parent: int, path: Path) -> bytes:
    with open(_open_no_link(path, os.O_NONBLOCK, parent), "rb") as file:
        _check(path, os.fstat(file.fileno()))
        return file.read(_MAX_BYTES)


def _check(path: Path, status: os.stat_result) -> None:
    is_folder = stat.S_ISDIR(status.st_mode)
    if not is_folder and not stat.S_ISREG(status.st_mode):
        raise Untrusted(f"{path} is not a regular file")
    if status.st_uid not in (os.getuid(), 0):
        raise Untrusted(f"{path} belongs to another user")
    # in a folder with the sticky bit, and in one of a group, others can add entries, but these belong to them
    writable = status.st_mode & (stat.S_IWOTH if is_folder else stat.S_IWOTH | stat.S_IWGRP)
    if writable and not (is_folder and status.st_mode & stat.S_ISVTX):
        raise Untrusted(f"{path} can be written by others")
