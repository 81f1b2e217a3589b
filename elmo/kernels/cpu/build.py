"""The library of C++ kernels for this processor: the prebuilt one of a platform wheel, or one that is compiled here.

    $ELMO_HOME/kernels/<level>-<digest>/kernels.so     without ELMO_HOME: elmo/ in $XDG_CACHE_HOME or ~/.cache

If the installed package has no prebuilt library, the machine's own compiler makes one at first use, once. The level
names the instruction set, so machines that share a home folder use different libraries. Compiling takes a few seconds
and is logged. A library whose checksum is wrong is compiled again; `library_cache` reads and checks the cache.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import OutputError
from elmo.files import atomic_folder, cache_home
from elmo.kernels.cpu.compiler import compile_library, find_compiler, library_name
from elmo.kernels.cpu.levels import CannotBuild, Level, processor_level
from elmo.kernels.cpu.library_cache import (
    CHECKSUM,
    LIBRARY,
    Untrusted,
    check_folders,
    checksum_line,
    load_bytes,
    read_library,
)
from elmo.kernels.cpu.prebuilt import NotPrebuilt, load_prebuilt

log = logging.getLogger(__name__)
_lock = threading.Lock()


@dataclass(frozen=True)
class LibraryChoice:
    """The library that this machine uses, and why; nothing is compiled to find out."""

    level: Level
    origin: str  # prebuilt, compiled, not compiled yet
    reason: str
    path: Path


def library() -> ctypes.CDLL:
    """The kernels for this processor; compiles them if they are neither prebuilt nor in the cache."""
    with _lock:
        return _load(processor_level())


def choose_library() -> LibraryChoice:
    """The library that `library` would use. Compiles nothing and writes nothing."""
    level = processor_level()
    try:
        shipped, path, _ = load_prebuilt(level)
    except NotPrebuilt as error:
        reason = str(error)
    else:
        return LibraryChoice(shipped, "prebuilt", "the installed package contains it", path)
    try:
        if stored_library(level) is not None:
            return LibraryChoice(level, "compiled", reason, library_path(level))
        find_compiler()
    except CannotBuild as error:
        raise CannotBuild(f"{error}; {reason}") from error
    return LibraryChoice(level, "not compiled yet", reason, library_path(level))


def library_path(level: Level) -> Path:
    """The path of the library for this level in the cache, compiled or not."""
    return cache_folder() / library_name(level) / LIBRARY


def cache_folder() -> Path:
    """The folder of compiled kernels. It is not created here."""
    if sys.platform == "win32":
        raise CannotBuild("on Windows the kernels are not compiled at first use; they come with the wheel for Windows")
    home = cache_home()
    if home is None or not home.parent.parent.exists():  # ~/.cache may be created, a home folder may not
        raise CannotBuild("there is no home folder for compiled kernels; set ELMO_HOME")
    return home / "kernels"


def stored_library(level: Level) -> bytes | None:
    """The compiled library in the cache, checked; None: it must be compiled."""
    try:
        return read_library(library_path(level).parent)
    except (OSError, Untrusted) as error:
        raise CannotBuild(f"the kernels in the cache are not used: {error}") from error


@functools.cache
def _load(level: Level) -> ctypes.CDLL:
    try:
        shipped, path, kernels = load_prebuilt(level)
    except NotPrebuilt as missing:
        try:
            return _load_compiled(level)
        except CannotBuild as error:
            raise CannotBuild(f"{error}; {missing}") from error
    log.info("prebuilt CPU kernels (%s): %s", shipped.name, path)
    return kernels


def _load_compiled(level: Level) -> ctypes.CDLL:
    path = library_path(level)
    data = stored_library(level)
    if data is None:
        data = _compile(level, path)
    try:
        kernels = load_bytes(data)
    except OSError as error:
        raise CannotBuild(f"{path} cannot be loaded ({error})") from error
    if not kernels.elmo_supports() & 1:
        raise CannotBuild(f"this processor lacks the instructions of {level.name}")
    return kernels


def _compile(level: Level, path: Path) -> bytes:
    """Compiles the library and stores it with its checksum. Processes that compile at once replace each other's."""
    find_compiler()
    reason = "the stored ones are damaged" if path.exists() else "once"
    log.warning("compiling CPU kernels (%s) into %s, %s; ELMO_KERNELS=torch avoids it", level.name, path.parent, reason)
    try:
        _make_cache_folder(path.parent.parent)
        check_folders(path.parent)
        with atomic_folder(path.parent, overwrite=True) as partial:
            output = partial / LIBRARY
            compile_library(level, output)
            data = output.read_bytes()
            (partial / CHECKSUM).write_text(checksum_line(path.parent.name, data), encoding="ascii")
            for file, mode in ((output, 0o755), (partial / CHECKSUM, 0o644), (partial, 0o755)):  # whatever the umask is
                file.chmod(mode)
    except (OSError, OutputError, Untrusted) as error:
        raise CannotBuild(f"the kernels could not be compiled into {path.parent} ({error})") from error
    return data


def _make_cache_folder(folder: Path) -> None:
    home = folder.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=0o755, exist_ok=True)  # not writable by others, whatever the umask is
    folder.mkdir(mode=0o700, exist_ok=True)
