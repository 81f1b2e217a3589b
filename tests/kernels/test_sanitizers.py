"""Random calls of the training kernels in builds with the sanitizers of the compiler: no error may be reported."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from elmo.kernels.cpu.compiler import SOURCES, find_compiler
from elmo.kernels.cpu.levels import CannotBuild, processor_level

DRIVERS = sorted(Path(__file__).parent.glob("random_*.cpp"))


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda path: path.stem)
def test_random_calls_are_clean(driver: Path, sanitizers: str, tmp_path: Path) -> None:
    try:
        compiler, level = find_compiler(), processor_level()
    except CannotBuild as error:
        pytest.skip(str(error))
    program = tmp_path / driver.stem
    flags = ["-O1", "-g", "-std=c++17", "-pthread", "-ffp-contract=off", "-fno-sanitize-recover=all"]
    command = [compiler, *flags, f"-fsanitize={sanitizers}", *(f"-m{flag}" for flag in level.flags), f"-I{SOURCES}"]
    sources = [str(path) for path in (driver, *sorted(SOURCES.glob("*.cpp")))]
    subprocess.run([*command, *sources, "-o", str(program)], check=True, capture_output=True, text=True)
    done = subprocess.run([str(program), "1", "20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
