"""The C++ kernels for other machines than this one: 64-bit ARM in qemu, Windows in wine, the integer types of macOS.

Debian's packages for all of them: g++-aarch64-linux-gnu qemu-user g++-mingw-w64-x86-64-posix wine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from elmo.kernels.cpu.compiler import FLAGS, SOURCES, compile_library
from elmo.kernels.cpu.levels import AVX2, AVX512, NEON, CannotBuild, Level, processor_level

DRIVER = Path(__file__).with_name("driver.cpp")
SEED, CASES = "7", "150"
# as on macOS, where int64_t is not long; the compiler's own headers must come first
OTHER_INT64 = "#include <bits/stdc++.h>\nusing other_int64 = long long;\n#define int64_t other_int64\n"
WINDOWS = ("-static", "-Wa,-muse-unaligned-vector-move")  # as in hatch_build.py


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")


def need_level(level: Level) -> None:
    try:
        flags = processor_level().flags
    except CannotBuild as error:
        pytest.skip(str(error))
    if not set(level.flags) <= set(flags):
        pytest.skip(f"this processor has no {level.name}")


def run_driver(folder: Path, compiler: str, level: Level, *options: str, emulator: str = "") -> np.ndarray:
    """The results of the driver, compiled for a level and run on the same random cases as every other build."""
    program, results = folder / f"{compiler}-{level.name}.exe", folder / f"{compiler}-{level.name}.bin"
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")] + [f"-m{flag}" for flag in level.flags]
    subprocess.run([compiler, *flags, *options, f"-I{SOURCES}", str(DRIVER), "-o", str(program)], check=True)
    command = [*([emulator] if emulator else []), str(program), str(results), SEED, CASES]
    environment = os.environ | {"WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}
    subprocess.run(command, check=True, env=environment)
    values = np.fromfile(results, np.float32)
    assert len(values) > 1_000_000
    assert np.unique(values).size > 100_000
    return values


@pytest.mark.slow
def test_neon_gives_the_bits_of_avx2(tmp_path: Path) -> None:
    need("g++", "aarch64-linux-gnu-g++", "qemu-aarch64")
    need_level(AVX2)
    expected = run_driver(tmp_path, "g++", AVX2)
    actual = run_driver(tmp_path, "aarch64-linux-gnu-g++", NEON, "-static", emulator="qemu-aarch64")
    assert np.array_equal(actual, expected, equal_nan=True)


@pytest.mark.slow
def test_lstm_stacks_train_on_neon_as_on_avx2(tmp_path: Path) -> None:
    need("g++", "aarch64-linux-gnu-g++", "qemu-aarch64")
    need_level(AVX2)
    results = []
    for compiler, level, options, emulator in (
        ("g++", AVX2, (), ()),
        ("aarch64-linux-gnu-g++", NEON, ("-static",), ("qemu-aarch64",)),
    ):
        program, file = tmp_path / f"{level.name}.exe", tmp_path / f"{level.name}.bin"
        flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")] + [f"-m{flag}" for flag in level.flags]
        sources = [str(DRIVER.with_name("random_lstm.cpp")), *map(str, SOURCES.glob("*.cpp"))]
        subprocess.run([compiler, *flags, *options, f"-I{SOURCES}", *sources, "-o", str(program)], check=True)
        subprocess.run([*emulator, str(program), SEED, "20", str(file)], check=True)
        results.append(np.fromfile(file, np.float32))
    assert len(results[0]) > 1_000_000
    # gradients of a layer's inputs are summed over the gates in the order of the registers
    assert np.abs(results[1] - results[0]).max() <= 1e-5 * np.abs(results[0]).max()


@pytest.mark.slow
@pytest.mark.parametrize("level", [AVX2, AVX512], ids=lambda level: level.name)
def test_windows_gives_the_bits_of_linux(tmp_path: Path, level: Level) -> None:
    need("g++", "x86_64-w64-mingw32-g++-posix", "wine")
    need_level(level)
    expected = run_driver(tmp_path, "g++", level)
    actual = run_driver(tmp_path, "x86_64-w64-mingw32-g++-posix", level, *WINDOWS, emulator="wine")
    assert np.array_equal(actual, expected, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "level", "options"),
    [
        ("aarch64-linux-gnu-g++", NEON, ()),
        ("x86_64-w64-mingw32-g++-posix", AVX2, WINDOWS),
        ("x86_64-w64-mingw32-g++-posix", AVX512, WINDOWS),
    ],
)
def test_the_whole_library_compiles_for_other_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, level: Level, options: tuple[str, ...]
) -> None:
    need(compiler)
    monkeypatch.setenv("CXX", compiler)
    compile_library(level, tmp_path / "kernels.dll", *options)
    assert b"elmo_contextualize" in (tmp_path / "kernels.dll").read_bytes()


def test_the_kernels_compile_where_int64_is_not_long(tmp_path: Path) -> None:
    need("g++")
    need_level(AVX2)
    (tmp_path / "other.h").write_text(OTHER_INT64)
    checked = 0
    for source in SOURCES.glob("*.cpp"):
        command = ["g++", "-std=c++17", "-fsyntax-only", "-mavx2", "-mfma", "-include", "other.h", f"-I{SOURCES}"]
        done = subprocess.run([*command, str(source)], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:2000]
        checked += 1
    assert checked
