"""Build hook of hatchling: with ELMO_PLATFORM_WHEEL=1 the wheel contains the CPU kernels, compiled for this platform.

    ELMO_PLATFORM_WHEEL=1 pip wheel . --no-deps      elmo_lm-...-py3-none-linux_x86_64.whl
    pip wheel . --no-deps                            elmo_lm-...-py3-none-any.whl: compiled at first use

The wheel works with every Python 3, because the libraries are called through ctypes. The tag of a Linux wheel claims
nothing about other distributions; `python3 run.py wheel --platform` lets auditwheel find the manylinux tag.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE_FOLDER = "elmo/kernels/cpu/prebuilt"
MACOS = "11.0"  # the first version for ARM
EXPORTS = "{ global: elmo_*; local: *; };\n"


class CompiledKernels(BuildHookInterface):
    """Compiles one library per instruction set and adds them to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("ELMO_PLATFORM_WHEEL") != "1":
            return
        sys.path.insert(0, self.root)
        from elmo.kernels.cpu.compiler import compile_library
        from elmo.kernels.cpu.levels import shipped_levels
        from elmo.kernels.cpu.prebuilt import file_name

        self.folder = tempfile.TemporaryDirectory(prefix="elmo-kernels-")
        options = link_options(Path(self.folder.name))
        for level in shipped_levels():
            path = Path(self.folder.name, file_name(level))
            self.app.display_info(f"compiling the kernels for {level.name}")
            compile_library(level, path, *options)
            build_data["force_include"][str(path)] = f"{PACKAGE_FOLDER}/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


def link_options(folder: Path) -> list[str]:
    """Options that hide everything but our functions, and make the library run on more machines than this one.

    On Linux, libstdc++ stays a shared library: torch needs it anyway, and a static one of a new compiler would need a C
    library as new as that compiler (manylinux_2_36 instead of 2_27 with Debian 12).
    """
    if sys.platform == "darwin":
        return [f"-mmacosx-version-min={MACOS}", "-Wl,-exported_symbol,_elmo_*"]
    if sys.platform == "win32":
        # GCC aligns the stack to 16 bytes on Windows, but reads vectors on it with aligned instructions
        return ["-static", "-s", "-Wa,-muse-unaligned-vector-move"]
    exports = folder / "exports.map"
    exports.write_text(EXPORTS, encoding="ascii")
    return ["-fno-gnu-unique", f"-Wl,--version-script={exports}", "-s"]


def platform_tag() -> str:
    """The platform of the wheel, as pip names it."""
    if sys.platform == "darwin":  # also of a universal Python
        return f"macosx_{MACOS.replace('.', '_')}_arm64"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
