"""Staging folders: random names, locks instead of process ids, renames that never replace by accident."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elmo.errors import OutputError
from elmo.files import atomic_file, atomic_folder, file_lock

ROOT = Path(__file__).resolve().parents[1]
NEW_PID_NAMESPACE = ["unshare", "--pid", "--fork", *([] if os.name != "nt" and os.getuid() == 0 else ["-r"])]

WRITER = """
import os, sys
from pathlib import Path
from elmo.files import atomic_file, atomic_folder
kind, path, end = sys.argv[1:]
with (atomic_folder if kind == "folder" else atomic_file)(path) as partial:
    (partial / "a" if kind == "folder" else partial).write_text("of the writer")
    print("written", flush=True)
    if end == "kill":
        os.kill(os.getpid(), 9)
    sys.stdin.read()
"""


@contextmanager
def other_process_writes(kind: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is inside atomic_file or atomic_folder until its input ends."""
    command = [sys.executable, "-c", WRITER, kind, str(path), "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        yield writer
        writer.communicate()


def can_run(command: list[str]) -> bool:
    return bool(shutil.which(command[0])) and subprocess.run([*command, "true"], capture_output=True).returncode == 0


def atomic(kind: str, path: Path, **options: Any) -> Any:
    return (atomic_folder if kind == "folder" else atomic_file)(path, **options)


def fill(kind: str, path: Path, text: str) -> None:
    if kind == "folder":
        path.mkdir(exist_ok=True)
        (path / "a").write_text(text)
    else:
        path.write_text(text)


def _fill_both(kind: str, partial: Path, target: Path) -> None:
    fill(kind, partial, "late")
    fill(kind, target, "first")


def content(path: Path) -> str:
    return (path / "a" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("pid_namespace", ["same", "new"])
def test_unfinished_work_of_a_live_process_is_kept(tmp_path: Path, kind: str, pid_namespace: str) -> None:
    prefix = [] if pid_namespace == "same" else NEW_PID_NAMESPACE
    if prefix and not can_run(prefix):
        pytest.skip("no right to create a PID namespace")
    target = tmp_path / "model"
    with other_process_writes(kind, target):
        code = (
            "import sys; from pathlib import Path; from elmo.files import atomic_folder\n"
            "with atomic_folder(sys.argv[1], overwrite=True) as partial: (partial / 'a').write_text('of the other')"
        )
        subprocess.run([*prefix, sys.executable, "-c", code, str(target)], check=True, cwd=ROOT)
        assert content(target) == "of the other"
        shutil.rmtree(target)
    assert content(target) == "of the writer"
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such lock")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "model"
    subprocess.run([sys.executable, "-c", WRITER, kind, str(target), "kill"], check=False, cwd=ROOT)
    assert len(os.listdir(tmp_path)) == 1
    with atomic(kind, target) as partial:
        fill(kind, partial, "of the next")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_target_that_appears_meanwhile_is_not_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    with pytest.raises(OutputError, match="out exists"), atomic(kind, target, overwrite=False) as partial:
        _fill_both(kind, partial, target)
    assert content(target) == "first"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_two_writers_in_one_process_do_not_share_their_work(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    with atomic(kind, target, overwrite=True) as first:
        fill(kind, first, "first")
        with atomic(kind, target, overwrite=True) as second:
            fill(kind, second, "second")
        assert content(target) == "second"
    assert content(target) == "first"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    target = tmp_path / "out" / "data"
    target.parent.mkdir()
    (target.parent / f".data.{os.getpid()}.partial").symlink_to(victim)  # a name that another user can predict
    with atomic_file(target) as partial:
        partial.write_text("new")
    assert victim.read_text() == "precious"
    assert target.read_text() == "new"
    assert not target.is_symlink()


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_lock_does_not_truncate_the_target_of_a_planted_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(OutputError, match="cannot be written"), file_lock(tmp_path / "lock", "", ""):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_results_have_the_usual_permissions(tmp_path: Path, kind: str) -> None:
    before = os.umask(0o027)
    try:
        with atomic(kind, tmp_path / "out") as partial:
            fill(kind, partial, "x")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == (0o750 if kind == "folder" else 0o640)
