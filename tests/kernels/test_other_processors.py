"""The C++ kernels for other machines than this one: 64-bit ARM in qemu, Windows in wine, other integer types.

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
# random calls of training kernels, and the source that has them; those of TRAINING write their results to a file
TRAINING = {"random_lstm": "train_lstm", "random_softmax": "train_softmax"}
RANDOM_CALLS = TRAINING | {
    "random_encoder": "train_encoder",
    "random_newton_schulz": "newton_schulz",
    "random_log_normalizer": "log_normalizer",
}
SEED, CASES, CALLS = "7", "150", "20"
# as on macOS, where int64_t is not long; the compiler's own headers must come first
OTHER_INT64 = "#include <bits/stdc++.h>\nusing other_int64 = long long;\n#define int64_t other_int64\n"
# as on Windows, where long has 32 bits; these are all headers of the system that the kernels include
SHORT_LONG = "#include <bits/stdc++.h>\n#include <immintrin.h>\n#include <sys/mman.h>\n#define long int\n"
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
    results = folder / f"{compiler}-{level.name}.bin"
    program = compile_program(folder, compiler, level, [DRIVER], *options)
    run_program(program, str(results), SEED, CASES, emulator=emulator)
    return read_results(results)


def run_training(
    folder: Path, compiler: str, level: Level, driver: str, *options: str, emulator: str = ""
) -> np.ndarray:
    """The results of random calls of a training kernel, compiled for a level."""
    results = folder / f"{compiler}-{level.name}.bin"
    program = compile_program(folder, compiler, level, sources_of(driver), *options)
    run_program(program, SEED, CALLS, str(results), emulator=emulator)
    return read_results(results)


def sources_of(driver: str) -> list[Path]:
    return [DRIVER.with_name(f"{driver}.cpp"), SOURCES / f"{RANDOM_CALLS[driver]}.cpp"]


def compile_program(folder: Path, compiler: str, level: Level, sources: list[Path], *options: str) -> Path:
    program = folder / f"{compiler}-{level.name}.exe"
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")] + [f"-m{flag}" for flag in level.flags]
    subprocess.run([compiler, *flags, *options, f"-I{SOURCES}", *map(str, sources), "-o", str(program)], check=True)
    return program


def run_program(program: Path, *arguments: str, emulator: str = "") -> str:
    """What the program printed. In wine the exit status of a program that crashed is 0."""
    environment = os.environ | {"WINEPREFIX": str(program.with_name("wine")), "WINEDEBUG": "-all"}
    command = [*([emulator] if emulator else []), str(program), *arguments]
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout


def read_results(file: Path) -> np.ndarray:
    values = np.fromfile(file, np.float32)
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
@pytest.mark.parametrize("driver", TRAINING)
def test_neon_trains_as_avx2(tmp_path: Path, driver: str) -> None:
    need("g++", "aarch64-linux-gnu-g++", "qemu-aarch64")
    need_level(AVX2)
    expected = run_training(tmp_path, "g++", AVX2, driver)
    actual = run_training(tmp_path, "aarch64-linux-gnu-g++", NEON, driver, "-static", emulator="qemu-aarch64")
    # gradients of a layer's inputs are summed over the gates in the order of the registers
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("level", [AVX2, AVX512], ids=lambda level: level.name)
def test_windows_gives_the_bits_of_linux(tmp_path: Path, level: Level) -> None:
    need("g++", "x86_64-w64-mingw32-g++-posix", "wine")
    need_level(level)
    expected = run_driver(tmp_path, "g++", level)
    actual = run_driver(tmp_path, "x86_64-w64-mingw32-g++-posix", level, *WINDOWS, emulator="wine")
    assert np.array_equal(actual, expected, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("level", [AVX2, AVX512], ids=lambda level: level.name)
@pytest.mark.parametrize("driver", TRAINING)
def test_windows_trains_as_linux(tmp_path: Path, driver: str, level: Level) -> None:
    need("g++", "x86_64-w64-mingw32-g++-posix", "wine")
    need_level(level)
    expected = run_training(tmp_path, "g++", level, driver)
    actual = run_training(tmp_path, "x86_64-w64-mingw32-g++-posix", level, driver, *WINDOWS, emulator="wine")
    # bit for bit, but for the logarithm in the losses, which is that of the system
    assert np.abs(actual - expected).max() <= 1e-7 * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("driver", sorted(RANDOM_CALLS.keys() - TRAINING.keys()))
def test_other_random_calls_run_on_windows(tmp_path: Path, driver: str) -> None:
    need("x86_64-w64-mingw32-g++-posix", "wine")
    need_level(AVX2)
    program = compile_program(tmp_path, "x86_64-w64-mingw32-g++-posix", AVX2, sources_of(driver), *WINDOWS)
    assert run_program(program, SEED, CALLS, emulator="wine").strip() == "fine"


@pytest.mark.slow
@pytest.mark.parametrize("driver", RANDOM_CALLS)
def test_random_calls_run_where_long_has_32_bits(tmp_path: Path, driver: str) -> None:
    need("g++")
    need_level(AVX2)
    (tmp_path / "short_long.h").write_text(SHORT_LONG)
    options = ("-include", str(tmp_path / "short_long.h"), "-w")  # -w: formats of printf
    run_program(compile_program(tmp_path, "g++", AVX2, sources_of(driver), *options), SEED, CALLS)


@pytest.mark.slow
def test_calls_with_more_elements_than_long_counts_are_refused(tmp_path: Path) -> None:
    need("g++")
    need_level(AVX2)
    (tmp_path / "short_long.h").write_text(SHORT_LONG)
    sources = [DRIVER.with_name("large_sizes.cpp"), *(SOURCES / f"{name}.cpp" for name in RANDOM_CALLS.values())]
    run_program(compile_program(tmp_path, "g++", AVX2, sources, "-include", str(tmp_path / "short_long.h")))


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
