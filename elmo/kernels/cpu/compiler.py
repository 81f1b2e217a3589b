"""The compilation of the C++ kernels of this folder to one shared library, by the machine's own compiler.

`build` compiles at first use, and hatch_build.py of the checkout compiles the libraries of a platform wheel. A library
needs only the compiler's own headers: it is called through ctypes and works with every version of Python and torch.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from elmo.kernels.cpu.levels import CannotBuild, Level

SOURCES = Path(__file__).parent
COMPILERS = ("g++", "c++", "clang++")
# no contraction and no fast-math, because the values of a row must not depend on the tile in which it is computed
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-math-errno")
COMPILE_TIMEOUT = 1800  # seconds; only a guard against hangs, because the machine may be busy


def library_name(level: Level) -> str:
    """The name of the library of this level: the digest covers sources and flags, so versions are never confused."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")]):
        digest.update(source.read_bytes())
    digest.update(repr((level, FLAGS)).encode())
    return f"{level.name}-{digest.hexdigest()[:16]}"


def compile_library(level: Level, output: Path, *options: str) -> None:
    """Compiles all *.cpp files of this folder for `level`; `options` are further options of the compiler."""
    compiler = find_compiler()
    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    command = [compiler, *FLAGS, *options, *(f"-m{flag}" for flag in level.flags), *sources, "-o", str(output)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMPILE_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{compiler} did not run or did not end ({error})") from error
    if done.returncode:
        raise CannotBuild(f"{compiler} failed: {_first_error(done.stderr)}")


def find_compiler() -> str:
    """The machine's C++ compiler."""
    if sys.platform == "darwin" and subprocess.run(["/usr/bin/xcode-select", "-p"], capture_output=True).returncode:
        # /usr/bin/c++ exists, but would open a window that offers to install it
        raise CannotBuild("no C++ compiler was found (xcode-select --install installs one)")
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (path := shutil.which(name)):
            return path
    raise CannotBuild(f"no C++ compiler was found (looked for $CXX, {', '.join(COMPILERS)})")


def _first_error(text: str) -> str:
    lines = text.splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
