"""The C++ kernels as a shared library: found in the cache, or compiled into it by the machine's own compiler.

    $ELMO_HOME/kernels/<level>-<digest>/kernels.so     ELMO_HOME is elmo/ in $XDG_CACHE_HOME or ~/.cache if not set

The digest covers sources and flags, so a new version never meets an old library; the level names the instructions it
was built for, so machines that share a home folder do not meet each other's. The library needs no headers but the
compiler's own: it is called through ctypes, whatever version of torch is installed. Compiling takes a few seconds,
once, and is logged.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import OutputError
from elmo.files import atomic_file, cache_home

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
COMPILERS = ("g++", "c++", "clang++")
# no contraction and no fast-math: a row's numbers must not depend on which tile it was computed in
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-math-errno")
AVX2 = ("avx2", "fma")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
MORE = {"avx512_bf16": "avx512bf16", "avx512_vnni": "avx512vnni"}  # the system's name -> the compiler's
SECONDS_TO_COMPILE = 300
_lock = threading.Lock()


class CannotBuild(Exception):
    """Why this machine has no compiled kernels, in one line."""


@dataclass(frozen=True)
class Level:
    """The vector instructions to compile for."""

    name: str  # avx512+bf16+vnni, avx512, avx2
    flags: tuple[str, ...]


def library() -> ctypes.CDLL:
    """The kernels for this processor, compiled first if the cache does not hold them."""
    with _lock:
        return _load(processor_level())


def processor_level() -> Level:
    """The best level this processor has; ELMO_KERNELS=avx2 takes no better one."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise CannotBuild(f"there are kernels for x86-64 only, and this is {platform.machine()}")
    have = _processor_flags()
    if have.issuperset(AVX512) and os.environ.get("ELMO_KERNELS", "").lower() != "avx2":
        more = [flag for name, flag in MORE.items() if name in have]
        return Level("+".join(["avx512", *(flag.removeprefix("avx512") for flag in more)]), (*AVX512, *more))
    if have.issuperset(AVX2):
        return Level("avx2", AVX2)
    raise CannotBuild("the processor has neither AVX-512 nor AVX2")


def library_path(level: Level) -> Path:
    """Where the library for this level is, or will be."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")]):
        digest.update(source.read_bytes())
    digest.update(repr((level, FLAGS)).encode())
    return cache_folder() / f"{level.name}-{digest.hexdigest()[:16]}" / "kernels.so"


def cache_folder() -> Path:
    """The folder of compiled kernels; nothing is made here."""
    home = cache_home()
    if home is None or not home.parent.parent.exists():  # ~/.cache may be made, a home folder not
        raise CannotBuild("there is no home folder to keep compiled kernels in; set ELMO_HOME")
    return home / "kernels"


@functools.cache
def _load(level: Level) -> ctypes.CDLL:
    path = library_path(level)
    if not path.exists():
        _compile(level, path)
    _check_owner(path)
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise CannotBuild(f"{path} cannot be loaded ({error})") from error
    if not found.elmo_supports() & 1:
        raise CannotBuild(f"this processor lacks the instructions of {level.name}")
    return found


def _compile(level: Level, path: Path) -> None:
    compiler = find_compiler()
    command = [compiler, *FLAGS, *(f"-m{flag}" for flag in level.flags), str(SOURCES / "bilm.cpp"), "-o"]
    log.warning("compiling CPU kernels (%s) into %s, once; ELMO_KERNELS=torch does without", level.name, path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as partial:  # processes that do this at once make the same file: the last one stays
            done = subprocess.run([*command, str(partial)], capture_output=True, text=True, timeout=SECONDS_TO_COMPILE)
            if done.returncode:
                raise CannotBuild(f"{compiler} failed: {_first_error(done.stderr)}")
            partial.chmod(0o755)
    except (OSError, OutputError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"the kernels could not be compiled into {path.parent} ({error})") from error


def find_compiler() -> str:
    """The machine's C++ compiler."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (found := shutil.which(name)):
            return found
    raise CannotBuild(f"no C++ compiler was found (looked for $CXX, {', '.join(COMPILERS)})")


def _check_owner(path: Path) -> None:
    # code is loaded from here: refuse what someone else could have put there
    found = path.stat()
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & stat.S_IWOTH:
        raise CannotBuild(f"{path} belongs to another user or can be written by everyone")


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise CannotBuild("the kernels are built on Linux only") from error
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())


def _first_error(text: str) -> str:
    lines = text.splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
