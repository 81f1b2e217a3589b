"""The C++ kernels of training built with the address, undefined-behaviour and thread sanitizers, over random calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from elmo.kernels.cpu.build import SOURCES, CannotBuild, find_compiler, processor_level

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
@pytest.mark.parametrize("driver", ["random_softmax"])
def test_random_calls_are_clean(driver: str, sanitizers: str, tmp_path: Path) -> None:
    try:
        compiler, level = find_compiler(), processor_level()
    except CannotBuild as error:
        pytest.skip(str(error))
    flags = ["-O1", "-g", "-std=c++17", "-pthread", "-ffp-contract=off", f"-fsanitize={sanitizers}"]
    flags += ["-fno-sanitize-recover=all", f"-I{SOURCES}", *(f"-m{flag}" for flag in level.flags)]
    sources = [str(HERE / f"{driver}.cpp"), *map(str, sorted(SOURCES.glob("*.cpp")))]
    program = str(tmp_path / driver)
    subprocess.run([compiler, *flags, *sources, "-o", program], check=True, timeout=1800)
    done = subprocess.run([program, "1", "20"], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
