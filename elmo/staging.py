"""Staging folders, in which a file or a folder is written before it is renamed to its final name.

    .NAME.<16 random hex digits>.partial/        beside the target, for its owner only
        .NAME.lock                               locked by the operating system while the writer lives
        NAME                                     what is written

The random name cannot be predicted, so nobody can plant a link there. The lock tells the work of a live process from a
leftover, also where process ids say nothing: in containers and on shared disks. `elmo.files` uses this module for all
of its writing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # checked before use

_HAS_LOCKS = fcntl is not None
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_AT_CWD, _RENAME_NOREPLACE, _RENAME_EXCHANGE = -100, 1, 2  # AT_FDCWD and flags of renameat2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.ENOTTY)


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A path in a new staging folder beside `path`, where nothing exists yet; the folder is removed at the end."""
    remove_leftovers(path)
    folder, lock = _new_folder(path)
    try:
        yield folder / path.name
    finally:
        if not _HAS_LOCKS:  # Windows does not delete open files
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
        if _HAS_LOCKS:
            os.close(lock)


def open_lock_file(path: Path) -> int:
    """The descriptor of a lock file, which is created if it does not exist; a symbolic link is an OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | _NO_FOLLOW, 0o666)


def move_into_place(source: Path, target: Path, *, overwrite: bool) -> None:
    """Renames a finished file or folder. Without `overwrite`, an existing target is a FileExistsError.

    A folder that exists is exchanged with the new one in one atomic step if the system can do so; then `source` holds
    the old folder.
    """
    if overwrite and not source.is_dir():
        os.replace(source, target)
        return
    if _rename(source, target, _RENAME_NOREPLACE):
        return
    if not os.path.lexists(target):  # the system has no such rename
        _move_to_free_name(source, target)
        return
    if not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    if not _rename(source, target, _RENAME_EXCHANGE):
        replaced = source.with_name(f"{source.name}.replaced")  # a crash after the next line leaves the old folder here
        os.replace(target, replaced)
        os.replace(source, target)


def allocate(path: Path, offset: int, num_bytes: int) -> None:
    """Reserves the disk space of `num_bytes` zeros in an existing file."""
    with open(path, "r+b", buffering=0) as file:
        if hasattr(os, "posix_fallocate") and num_bytes:
            try:
                os.posix_fallocate(file.fileno(), offset, num_bytes)
                return
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV):
                    raise
        file.seek(offset)  # the system or the file system cannot reserve space: write the zeros
        while num_bytes > 0:
            num_bytes -= file.write(bytes(min(num_bytes, 1 << 20)))


def remove_leftovers(path: Path) -> None:
    """Removes the staging folders of `path` that no process has locked, because their writers have ended."""
    if not _HAS_LOCKS:
        return
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.partial")
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith(".") and pattern.fullmatch(name)]
    except OSError:  # the writer reports it
        return
    for name in names:
        _remove_if_unlocked(path.parent / name, path.name)


def _remove_if_unlocked(folder: Path, name: str) -> None:
    try:
        lock = os.open(_lock_path(folder, name), os.O_RDWR | _NO_FOLLOW)
    except FileNotFoundError:  # its writer ended, or has not created its lock yet: then it notices and starts again
        _remove_empty(folder)
        return
    except OSError:  # of another user
        return
    try:
        if _take_lock(lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # not empty: not ours to judge
        return


def _new_folder(path: Path) -> tuple[Path, int]:
    """A new staging folder and the descriptor that holds its lock."""
    while True:
        folder = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
        folder.mkdir(mode=0o700)
        try:
            lock = os.open(_lock_path(folder, path.name), os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o600)
        except FileNotFoundError:  # another process took the empty folder for a leftover
            continue
        except OSError:  # for example a full disk
            _remove_empty(folder)
            raise
        if not _HAS_LOCKS or (_take_lock(lock, without=True) and _lock_path(folder, path.name).exists()):
            return folder, lock
        os.close(lock)  # another process locked it first, to remove it
        shutil.rmtree(folder, ignore_errors=True)


def _lock_path(folder: Path, name: str) -> Path:
    return folder / f".{name}.lock"


def _take_lock(descriptor: int, *, without: bool = False) -> bool:
    """Whether this process holds the lock now; `without` is the answer where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without
    return True


def _move_to_free_name(source: Path, target: Path) -> None:
    """Renames without replacing, where the system cannot do so itself."""
    if source.is_dir():
        os.rename(source, target)  # fails unless the target does not exist or is an empty folder
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # reserves the name
        os.replace(source, target)


def _rename(source: Path, target: Path, flag: int) -> bool:
    """Whether renameat2 renamed the file; False: the system has no such call, or the target exists (NOREPLACE)."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_CWD, os.fsencode(source), _AT_CWD, os.fsencode(target), flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED or code == errno.EEXIST and flag == _RENAME_NOREPLACE:
        return False
    raise OSError(code, os.strerror(code), str(target))
