"""The kernels that a platform wheel brings along, one library per instruction set, for machines without a compiler.

    elmo/kernels/cpu/prebuilt/<level>-<digest>.so     .dll on Windows

A checkout and the pure wheel have none. The digest is that of the sources in this folder, so that a library of another
version is never loaded. The files are as trustworthy as the Python files beside them, and `elmo doctor` compares both
with the checksums that pip has recorded.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from elmo.kernels.cpu.compiler import SOURCES, library_name
from elmo.kernels.cpu.levels import Level, shipped_levels

FOLDER = SOURCES / "prebuilt"
SUFFIX = ".dll" if sys.platform == "win32" else ".so"


class NotPrebuilt(Exception):
    """The installed package has no library for this processor; the message is the reason, in one line."""


def load_prebuilt(level: Level) -> tuple[Level, Path, ctypes.CDLL]:
    """The library for the best shipped level that a processor of this level can run."""
    if not FOLDER.is_dir():
        raise NotPrebuilt("this installation, a checkout or a pure wheel, has no prebuilt kernels")
    for shipped in shipped_levels():
        path = FOLDER / file_name(shipped)
        if set(shipped.flags) <= set(level.flags) and path.exists():
            return shipped, path, _load(path)
    raise NotPrebuilt(f"the prebuilt kernels in {FOLDER} are for other processors or of another version")


def file_name(level: Level) -> str:
    """The name of the library of this level inside the folder."""
    return library_name(level) + SUFFIX


def _load(path: Path) -> ctypes.CDLL:
    try:
        kernels = ctypes.CDLL(str(path))
    except OSError as error:  # an older C library than the wheel needs, or no right to execute
        raise NotPrebuilt(f"the prebuilt kernels cannot be loaded ({error})") from error
    if not kernels.elmo_supports() & 1:
        raise NotPrebuilt(f"the processor lacks instructions of the prebuilt kernels in {path.name}")
    return kernels
