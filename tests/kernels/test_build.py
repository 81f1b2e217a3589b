"""The cache of compiled kernels: only a library that this user compiled, byte for byte, is ever loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elmo.kernels.cpu.build import library, library_path
from elmo.kernels.cpu.levels import CannotBuild, processor_level

ROOT = Path(__file__).resolve().parents[2]
LOAD = """
from elmo.kernels.cpu.build import library
from elmo.kernels.cpu.levels import CannotBuild
try:
    print("loaded", library().elmo_supports() > 0)
except CannotBuild as error:
    print("refused:", error)
"""
# a compiler that takes no time: it hands out the library that this machine has compiled before
COMPILER = '#!/bin/sh\nfor out; do :; done\necho compiled >> "$COMPILER_LOG"\ncp "$COMPILED" "$out"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache folder with a compiled library."""
    try:
        library()
    except CannotBuild as error:
        pytest.skip(str(error))
    compiled = library_path(processor_level())
    shutil.copy(compiled, tmp_path / "compiled.so")
    (tmp_path / "c++").write_text(COMPILER)
    (tmp_path / "c++").chmod(0o755)
    (tmp_path / "home").mkdir()
    assert "loaded True" in run(tmp_path / "home").stdout
    assert compilations(tmp_path / "home") == 1
    return tmp_path / "home"


def start(home: Path, code: str = LOAD, *, can_compile: bool = True) -> subprocess.Popen[str]:
    variables = {
        "ELMO_HOME": str(home), "HOME": str(home), "PYTHONPATH": str(ROOT),
        "COMPILED": str(home.parent / "compiled.so"), "PATH": os.environ["PATH"] if can_compile else "/nowhere",
        "COMPILER_LOG": str(home.parent / "log"),
        **({"CXX": str(home.parent / "c++")} if can_compile else {}),
    }  # fmt: skip
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], env=variables, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def run(home: Path, code: str = LOAD, *, can_compile: bool = True) -> subprocess.CompletedProcess[str]:
    process = start(home, code, can_compile=can_compile)
    stdout, stderr = process.communicate()
    assert process.returncode == 0, (process.returncode, stderr)
    return subprocess.CompletedProcess(process.args, 0, stdout, stderr)


def compilations(home: Path) -> int:
    return (home.parent / "log").read_text().count("compiled")


def stored_library(home: Path) -> Path:
    (path,) = home.rglob("kernels.so")
    return path


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def replace_by_another(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"another library")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove_checksum(path: Path) -> None:
    path.with_name("kernels.so.sha256").unlink()


@pytest.mark.parametrize(
    "damage", [truncate, zero, replace_by_another, empty, remove_checksum], ids=lambda f: f.__name__
)
def test_a_damaged_library_is_not_loaded_but_compiled_again(home: Path, damage: Callable[[Path], None]) -> None:
    damage(stored_library(home))
    done = run(home, can_compile=False)
    assert done.stdout.startswith("refused: ")
    assert "no C++ compiler" in done.stdout
    assert "loaded True" in run(home).stdout
    assert compilations(home) == 2
    assert "loaded True" in run(home, can_compile=False).stdout
    assert not list(home.rglob("*.partial"))


def test_a_library_of_another_version_is_not_loaded(home: Path) -> None:
    checksum = stored_library(home).with_name("kernels.so.sha256")
    version = checksum.parent.name
    checksum.write_text(checksum.read_text().replace(version, "avx2-0123456789abcdef"))  # copied from there
    assert run(home, can_compile=False).stdout.startswith("refused: ")


@pytest.mark.parametrize("place", ["kernels.so", "kernels.so.sha256", "..", "../.."])
def test_what_others_can_write_is_refused(home: Path, place: str) -> None:
    path = (stored_library(home).parent / place).resolve()
    path.chmod(path.stat().st_mode | 0o002)
    done = run(home)
    assert done.stdout.startswith("refused: ")
    assert f"{path} can be written by others" in done.stdout
    assert compilations(home) == 1


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("place", ["kernels.so", "kernels.so.sha256", ".", "..", "../.."])
def test_what_belongs_to_another_user_is_refused(home: Path, place: str) -> None:
    path = (stored_library(home).parent / place).resolve()
    os.chown(path, 65534, 65534)
    done = run(home)
    assert done.stdout.startswith("refused: ")
    assert f"{path} belongs to another user" in done.stdout
    assert compilations(home) == 1


def test_a_link_in_the_cache_is_refused(home: Path) -> None:
    folder = stored_library(home).parent
    folder.rename(home / "elsewhere")
    folder.symlink_to(home / "elsewhere")
    done = run(home)
    assert done.stdout.startswith("refused: ")
    assert "is a symbolic link" in done.stdout


def test_a_loaded_library_does_not_depend_on_its_file(home: Path) -> None:
    code = (
        "from elmo.kernels.cpu.build import library\n"
        "kernels = library()\n"
        f"open({str(stored_library(home))!r}, 'r+b').truncate(0)\n"
        "print(kernels.elmo_panel() > 0, kernels.elmo_supports() > 0)"
    )
    assert run(home, code).stdout == "True True\n"


def test_two_levels_are_two_libraries(home: Path) -> None:
    code = (
        "import os\n"
        "from elmo.kernels.cpu.build import library\n"
        "first = library(); os.environ['ELMO_KERNELS'] = 'avx2'; second = library()\n"
        "print(first is second or first._handle != second._handle)"
    )
    assert run(home, code).stdout == "True\n"


def test_processes_that_compile_at_once_all_load_the_library(home: Path) -> None:
    shutil.rmtree(home / "kernels")
    processes = [start(home) for _ in range(3)]
    outputs = [process.communicate() for process in processes]
    assert [out for out, _ in outputs] == ["loaded True\n"] * 3, outputs
    assert "loaded True" in run(home, can_compile=False).stdout
    assert not list(home.rglob("*.partial"))
