"""Prebuilt kernels: the best library that the processor can run, never one of another version, and a reason if none."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elmo.kernels.cpu import prebuilt
from elmo.kernels.cpu.build import choose_library, library, library_path
from elmo.kernels.cpu.levels import AVX2, AVX512, NEON, CannotBuild, Level, processor_level, shipped_levels
from elmo.kernels.cpu.prebuilt import NotPrebuilt, file_name, load_prebuilt

ROOT = Path(__file__).resolve().parents[2]
# a new process, as `library` loads one library per level for the life of a process
USE = """
import sys
from pathlib import Path
from elmo.kernels.cpu import prebuilt
prebuilt.FOLDER = Path(sys.argv[1])
from elmo.kernels.api import describe
from elmo.kernels.cpu.build import library
print(describe()["cpu_kernels"])
print("supports", library().elmo_supports())
"""


@pytest.fixture
def compiled() -> Path:
    """The library that this machine compiles for itself."""
    try:
        library()
        return library_path(processor_level())
    except CannotBuild as error:
        pytest.skip(str(error))


@pytest.fixture
def folder(tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed platform wheel, with the library of this processor alone."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    shutil.copy(compiled, folder / file_name(processor_level()))
    monkeypatch.setattr(prebuilt, "FOLDER", folder)
    return folder


def use(folder: Path, home: Path, **variables: str) -> str:
    home.mkdir(exist_ok=True)
    environment = {"PATH": "/nowhere", "HOME": str(home), "ELMO_HOME": str(home), "PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run([sys.executable, "-c", USE, str(folder)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_prebuilt_library_is_used_without_a_compiler_and_without_a_cache(folder: Path, tmp_path: Path) -> None:
    output = use(folder, tmp_path / "home")
    assert output.startswith(f"{processor_level().name}, prebuilt: ")
    assert "supports 0" not in output
    assert not list((tmp_path / "home").iterdir())


def test_the_prebuilt_library_is_preferred_to_a_compiled_one(folder: Path) -> None:
    choice = choose_library()
    assert choice.origin == "prebuilt"
    assert choice.path.parent == folder


def test_a_library_of_other_sources_is_not_loaded(folder: Path) -> None:
    (path,) = folder.iterdir()
    path.rename(folder / path.name.replace("-", "-0"))
    with pytest.raises(NotPrebuilt, match="another version"):
        load_prebuilt(processor_level())
    choice = choose_library()
    assert choice.origin == "compiled"
    assert "another version" in choice.reason


def test_a_library_that_cannot_be_loaded_is_replaced_by_a_compiled_one(
    folder: Path, tmp_path: Path, compiled: Path
) -> None:
    (path,) = folder.iterdir()
    path.write_bytes(b"no library")
    home = tmp_path / "home"
    shutil.copytree(compiled.parents[1], home / "kernels")
    output = use(folder, home)
    assert ", compiled: the prebuilt kernels cannot be loaded" in output
    assert "supports 0" not in output


def test_without_prebuilt_kernels_and_compiler_both_reasons_are_given(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path / "none")
    monkeypatch.setenv("ELMO_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CannotBuild, match=r"no C\+\+ compiler was found .*; this installation.* no prebuilt kernels"):
        choose_library()


def test_a_processor_takes_the_best_shipped_level_below_its_own(folder: Path, compiled: Path) -> None:
    try:
        if AVX512.name not in processor_level().name:
            pytest.skip("this processor has no AVX-512")
    except CannotBuild as error:
        pytest.skip(str(error))
    for path in folder.iterdir():
        path.unlink()
    shutil.copy(compiled, folder / file_name(AVX512))  # no such processor exists: bfloat16 without 8-bit products
    level, path, _ = load_prebuilt(Level("avx512+bf16", (*AVX512.flags, "avx512bf16")))
    assert level == AVX512
    assert path.name == file_name(AVX512)
    with pytest.raises(NotPrebuilt):
        load_prebuilt(AVX2)


@pytest.mark.parametrize("machine", ["x86_64", "AMD64", "aarch64", "arm64"])
def test_the_best_level_is_shipped_first_and_every_level_once(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    levels = shipped_levels()
    assert levels[-1] == (AVX2 if machine in ("x86_64", "AMD64") else NEON)
    for better, worse in itertools.pairwise(levels):
        assert not set(better.flags) <= set(worse.flags)
    assert len({file_name(level) for level in levels}) == len(levels)


def test_arm_has_neon_and_other_machines_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for machine in ("aarch64", "arm64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert processor_level() == NEON
    for system, machine in (("linux", "riscv64"), ("darwin", "x86_64"), ("win32", "ARM64")):
        monkeypatch.setattr("sys.platform", system)
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        with pytest.raises(CannotBuild, match=f"and this is .* on {machine}"):
            processor_level()


def test_avx2_on_request_is_another_prebuilt_library(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("ELMO_KERNELS", "avx2")
    if processor_level() != AVX2:
        pytest.skip("ELMO_KERNELS=avx2 has no effect on this processor")
    library()
    shutil.copy(library_path(AVX2), folder / file_name(AVX2))
    output = use(folder, tmp_path / "home", ELMO_KERNELS="avx2")
    assert output.startswith("avx2, prebuilt: ")
    assert output.endswith("supports 1\n")
    assert os.listdir(tmp_path / "home") == []
