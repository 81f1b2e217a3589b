"""Build of the C++ kernels as a shared library, compiled once by the machine's own compiler and cached.

    $ELMO_HOME/kernels/<level>-<digest>/kernels.so     without ELMO_HOME: elmo/ in $XDG_CACHE_HOME or ~/.cache

The digest covers sources and flags, so a new version never loads an old library. The level names the instruction set,
so machines that share a home folder use different libraries. The library needs only the compiler's own headers: it is
called through ctypes and works with every version of torch. Compiling takes a few seconds and is logged. A library
whose checksum is wrong is compiled again; `library_cache` reads and checks the cache.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import OutputError
from elmo.files import atomic_folder, cache_home
from elmo.kernels.cpu.library_cache import (
    CHECKSUM,
    LIBRARY,
    Untrusted,
    check_folders,
    checksum_line,
    load_bytes,
    read_library,
)

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
COMPILERS = ("g++", "c++", "clang++")
# no contraction and no fast-math, because the values of a row must not depend on the tile in which it is computed
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-math-errno")
AVX2 = ("avx2", "fma")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
AVX512_EXTRAS = {"avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni"}  # name in /proc/cpuinfo -> compiler flag
COMPILE_TIMEOUT = 1800  # seconds; only a guard against hangs, because the machine may be busy
_lock = threading.Lock()


class CannotBuild(Exception):
    """This machine cannot have compiled kernels; the message is the reason, in one line."""


@dataclass(frozen=True)
class Level:
    """The set of vector instructions to compile for."""

    name: str  # avx512+bf16+vnni, avx512, avx2
    flags: tuple[str, ...]


def library() -> ctypes.CDLL:
    """The kernels for this processor; compiles them if they are not in the cache."""
    with _lock:
        return _load(processor_level())


def processor_level() -> Level:
    """The best level of this processor; with ELMO_KERNELS=avx2 at most AVX2."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise CannotBuild(f"there are kernels for x86-64 only, and this is {platform.machine()}")
    processor_flags = _processor_flags()
    if processor_flags.issuperset(AVX512) and os.environ.get("ELMO_KERNELS", "").lower() != "avx2":
        extras = [flag for name, flag in AVX512_EXTRAS.items() if name in processor_flags]
        return Level("+".join(["avx512", *(flag.removeprefix("avx512") for flag in extras)]), (*AVX512, *extras))
    if processor_flags.issuperset(AVX2):
        return Level("avx2", AVX2)
    raise CannotBuild("the processor has neither AVX-512 nor AVX2")


def library_path(level: Level) -> Path:
    """The path of the library for this level, compiled or not."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")]):
        digest.update(source.read_bytes())
    digest.update(repr((level, FLAGS)).encode())
    return cache_folder() / f"{level.name}-{digest.hexdigest()[:16]}" / LIBRARY


def cache_folder() -> Path:
    """The folder of compiled kernels. It is not created here."""
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
    compiler = find_compiler()
    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    command = [compiler, *FLAGS, *(f"-m{flag}" for flag in level.flags), *sources, "-o"]
    reason = "the stored ones are damaged" if path.exists() else "once"
    log.warning("compiling CPU kernels (%s) into %s, %s; ELMO_KERNELS=torch avoids it", level.name, path.parent, reason)
    try:
        _make_cache_folder(path.parent.parent)
        check_folders(path.parent)
        with atomic_folder(path.parent, overwrite=True) as partial:
            output = partial / LIBRARY
            done = subprocess.run([*command, str(output)], capture_output=True, text=True, timeout=COMPILE_TIMEOUT)
            if done.returncode:
                raise CannotBuild(f"{compiler} failed: {_first_error(done.stderr)}")
            data = output.read_bytes()
            (partial / CHECKSUM).write_text(checksum_line(path.parent.name, data), encoding="ascii")
            for file, mode in ((output, 0o755), (partial / CHECKSUM, 0o644), (partial, 0o755)):  # whatever the umask is
                file.chmod(mode)
    except (OSError, OutputError, Untrusted, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"the kernels could not be compiled into {path.parent} ({error})") from error
    return data


def _make_cache_folder(folder: Path) -> None:
    home = folder.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=0o755, exist_ok=True)  # not writable by others, whatever the umask is
    folder.mkdir(mode=0o700, exist_ok=True)


def find_compiler() -> str:
    """The machine's C++ compiler."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (path := shutil.which(name)):
            return path
    raise CannotBuild(f"no C++ compiler was found (looked for $CXX, {', '.join(COMPILERS)})")


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise CannotBuild("the kernels are built on Linux only") from error
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())


def _first_error(text: str) -> str:
    lines = text.splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
