"""Files: reading with decompression by suffix, atomic writing, locks, checksums, the cache folder, optional modules.

Every writer in the package uses `atomic_file` or `atomic_folder`, so that a reader never sees an incomplete file and a
full disk is always the same error. Every text reader uses `open_bytes`, so that .gz, .xz, .bz2 and .zst can be read.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import importlib
import json
import lzma
import math
import os
import shutil
import socket
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from elmo.errors import DataError, ElmoError, MissingExtra, OutputError
from elmo.staging import allocate, move_into_place, open_lock_file, staged
from elmo.xz import open_xz
from elmo.zst import open_zst

if TYPE_CHECKING:
    import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # checked before use

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)  # what a file of `open_bytes` raises if it is damaged


def require_extra(module: str, extra: str, what: str | None = None) -> Any:
    """An optional module; without it, a MissingExtra error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(what or module, extra) from error


def cache_home() -> Path | None:
    """The folder for cached files and models: $ELMO_HOME, $XDG_CACHE_HOME/elmo, or ~/.cache/elmo. It is not created.

    None where the user has no home folder, neither in the environment nor in the system's list of users.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    folder = os.path.expanduser(os.environ.get("ELMO_HOME") or os.path.join(caches, "elmo"))
    return None if folder.startswith("~") else Path(folder)


def open_bytes(path: str | Path) -> IO[bytes]:
    """A file for reading, decompressed by its suffix; "-" is standard input."""
    if str(path) == "-":
        return sys.stdin.buffer
    path = Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder; a file was expected.")
        if path.suffix == ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        if path.suffix == ".bz2":
            return cast(IO[bytes], bz2.open(path, "rb"))
        if path.suffix == ".xz":
            return open_xz(path)
        if path.suffix == ".zst":
            return open_zst(path, require_extra("zstandard", "zstd"))
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error


def check_regular(path: Path, error: type[ElmoError] = DataError) -> None:
    """Raises `error` for a FIFO, a device or a socket, because reading one may never end. Missing files pass."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise error(f"{path} is not a regular file.", "FIFOs and devices are not read here.")


def sha256_file(path: str | Path) -> str:
    """The hex sha256 of a file's bytes, read in bounded memory."""
    return file_checksum(path, "sha256")


def file_checksum(path: str | Path, algorithm: str) -> str:
    """The hex checksum of a file's bytes, read in bounded memory."""
    digest = hashlib.new(algorithm, usedforsecurity=algorithm != "sha1")
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def atomic_file(path: str | Path, *, overwrite: bool = True) -> Iterator[Path]:
    """A temporary path near `path`; without an error the file is synced and renamed to `path`, else it is removed.

    Without `overwrite`, a file that exists, also one that appears while this one is written, is an OutputError.
    """
    path = Path(path)
    _check_free(path, overwrite)
    with explain_write(path), staged(path) as partial:
        yield partial
        _sync(partial)
        _publish(partial, path, overwrite)


@contextmanager
def atomic_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder near `path`; without an error its files are synced and it is renamed to `path`."""
    path = Path(path)
    _check_free(path, overwrite)
    with explain_write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with staged(path) as partial:
            partial.mkdir()
            yield partial
            for file in sorted(partial.rglob("*")):
                _sync(file)
            _sync(partial)
            _publish(partial, path, overwrite)


def _check_free(path: Path, overwrite: bool) -> None:
    if not overwrite and os.path.lexists(path):
        raise OutputError(f"{path} exists.", "Choose another name or pass --overwrite.")


def _publish(partial: Path, path: Path, overwrite: bool) -> None:
    try:
        move_into_place(partial, path, overwrite=overwrite)
    except FileExistsError as error:
        raise OutputError(
            f"{path} exists: it appeared while this was written.", "Choose another name or pass --overwrite."
        ) from error
    _sync(path.parent)


def create_mapped(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A new .npy file as a writable, memory-mapped array of zeros; use it inside `atomic_file` or `atomic_folder`.

    Its disk space is allocated first: on a full disk, a write to mapped memory would kill the process (SIGBUS).
    """
    import numpy as np  # slow to import, and most callers of this module do not need it

    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)  # a header and a hole
        allocate(path, mapped.offset, num_bytes)
    except OSError as error:
        raise _TooLarge(error.errno, error.strerror, path.name, num_bytes) from error
    return cast("np.ndarray", mapped)


class _TooLarge(OSError):
    """There is no space for a file of a known size."""

    def __init__(self, code: int | None, reason: str | None, name: str, num_bytes: int) -> None:
        super().__init__(code, reason)
        self.needed = f"{name} needs {num_bytes / 1e6:,.1f} MB"


@contextmanager
def file_lock(path: Path, in_use: str, hint: str, *, shared: bool = False, wait: bool = False) -> Iterator[None]:
    """Holds an operating-system lock on the file `path`, which ends with the process, however the process ends.

    While another process holds the lock, this waits (`wait`) or raises an OutputError: `in_use` followed by the holder.
    Holders with `shared` exclude only holders without. Windows has no such lock, so every process is admitted there.
    """
    with explain_write(path):
        file = os.fdopen(open_lock_file(path), "r+", encoding="utf-8")
    with file:
        if fcntl is not None:
            operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
            try:
                fcntl.flock(file, operation)
            except BlockingIOError as error:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise OutputError(f"{in_use} {holder}.", hint) from error
            except OSError as error:  # the file system has no locks
                raise OutputError(f"{path}: cannot be locked ({error.strerror or error}).") from error
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


@contextmanager
def explain_write(path: str | Path) -> Iterator[None]:
    """Turns all errors for a full disk or a read-only folder into an OutputError that names the path."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError) or isinstance(error, RuntimeError) and not _looks_full(error):
            raise
        raise OutputError(f"{path}: cannot be written ({_write_reason(error)}).", _free_space(path)) from error


def read_json(path: str | Path, *, error: type[ElmoError] = DataError, max_bytes: int = 1 << 20) -> dict[str, Any]:
    """The JSON object in a file of at most max_bytes. Untrusted files are safe to read: see `parse_json`.

    Whatever is wrong with the file is raised as `error`: DataError for data, WeightsError for a model's files.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise error(f"{path} is not a regular file.", "A JSON file was expected.")
        num_bytes = path.stat().st_size
        data = path.read_bytes() if num_bytes <= max_bytes else b""
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror or reason}).") from reason
    if num_bytes > max_bytes:
        raise error(f"{path} has {num_bytes:,} bytes; expected at most {max_bytes:,}.", "Check the path.")
    return parse_json(data, str(path), error=error)


def parse_json(
    data: bytes,
    source: str,
    *,
    error: type[ElmoError] = DataError,
    hint: str = "Check that it is the right file.",
) -> dict[str, Any]:
    """The JSON object in UTF-8 bytes; `source` names them in errors.

    Duplicate keys, NaN, infinity, deep nesting and values other than an object are errors.
    """
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except RecursionError as reason:
        raise error(f"{source}: not valid JSON (nested too deeply).", hint) from reason
    except ValueError as reason:  # bad JSON, bad UTF-8, duplicate keys, NaN, numbers of thousands of digits
        raise error(f"{source}: not valid JSON ({str(reason)[:200]}).", hint) from reason
    if not isinstance(value, dict):
        raise error(f"{source}: holds a {type(value).__name__}; expected a JSON object.", hint)
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        key, count = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"key {key[:80]!r} occurs {count} times")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _looks_full(error: BaseException) -> bool:
    # torch.save, h5py, numpy and safetensors each have their own message for a full disk, without an errno
    text = str(error).lower()
    messages = (
        "no space left",
        "unexpected pos",
        "file too large",
        "errno = 28",
        "can't write",
        "requested and",
        "iostream error",
    )
    return any(message in text for message in messages)


def _write_reason(error: BaseException) -> str:
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or _looks_full(error):
        needed = f"; {error.needed}" if isinstance(error, _TooLarge) else ""
        return f"the disk is full or a size limit is reached{needed}"
    return os.strerror(code) if code else str(error).splitlines()[0]


def _free_space(path: str | Path) -> str:
    folder = Path(path).absolute().parent
    while not folder.exists():
        folder = folder.parent
    return f"{shutil.disk_usage(folder).free / 1e6:,.0f} MB are free in {folder}."


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder for syncing
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
