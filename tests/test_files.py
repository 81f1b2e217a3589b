"""Files: atomic writing, decompression by suffix, locks, checksums, errors for users."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from elmo.errors import DataError, MissingExtra, OutputError
from elmo.files import atomic_file, atomic_folder, file_lock, open_bytes, require_extra, sha256_file
from elmo.mapped_arrays import open_mapped


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with atomic_file(target) as partial:
        partial.write_text("half")
        assert not target.exists()
    assert target.read_text() == "half"
    with pytest.raises(ZeroDivisionError):
        _write_and_fail(target)
    assert target.read_text() == "half"
    assert os.listdir(tmp_path) == ["out.txt"]


def _write_and_fail(target: Path) -> None:
    with atomic_file(target) as partial:
        partial.write_text("other")
        raise ZeroDivisionError


def test_a_folder_is_replaced_in_one_step(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for number in range(3):
        with atomic_folder(target, overwrite=True) as partial:
            (partial / f"{number}.txt").write_text(str(number))
        assert os.listdir(target) == [f"{number}.txt"]
    assert os.listdir(tmp_path) == ["model"]
    with pytest.raises(OutputError, match="exists"), atomic_folder(target):
        pass


def test_leftovers_of_a_dead_process_are_removed(tmp_path: Path) -> None:
    code = textwrap.dedent(
        f"""
        import os
        from elmo.files import atomic_folder
        with atomic_folder({str(tmp_path / "model")!r}) as partial:
            (partial / "a").write_text("a")
            os.kill(os.getpid(), 9)
        """
    )
    subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[1])
    assert len(os.listdir(tmp_path)) == 1
    with atomic_folder(tmp_path / "model") as partial:
        (partial / "b").write_text("b")
    assert os.listdir(tmp_path) == ["model"]


def test_a_read_only_or_missing_folder_is_an_output_error(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="cannot be written"),
        atomic_file(tmp_path / "no" / "such" / "file") as partial,
    ):
        partial.write_text("x")


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_files_open_by_their_suffix(tmp_path: Path, suffix: str) -> None:
    import bz2
    import gzip
    import lzma

    data = "zwölf Boxkämpfer\n".encode()
    packers = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    if suffix == ".zst":
        packers[".zst"] = pytest.importorskip("zstandard").compress
    path = tmp_path / f"text{suffix}"
    path.write_bytes(packers[suffix](data))
    with open_bytes(path) as file:
        assert file.read() == data


def test_a_folder_or_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError):
            open_bytes(path)


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"pip install spacy"):
        require_extra("no_such_module_at_all", "spacy")


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_file(tmp_path / "a").startswith("ba7816bf8f01cfea")


HOLDER = """
import sys
from pathlib import Path
from elmo.files import file_lock
with file_lock(Path(sys.argv[1]), "x", "y", shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process_holds(path: Path, kind: str = "alone") -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(path), kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such lock")
def test_a_lock_names_its_holder_and_ends_with_the_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other_process_holds(path) as holder:
        with pytest.raises(OutputError, match=f"^out is in use by process {holder.pid} on .*\n  Wait for it"):
            with file_lock(path, "out is in use by", "Wait for it."):
                pass
    with file_lock(path, "out is in use by", "Wait for it."):  # the holder was killed
        assert path.read_text().startswith(f"process {os.getpid()} on ")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such lock")
def test_shared_locks_exclude_only_exclusive_locks(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other_process_holds(path, "shared"):
        with file_lock(path, "out is in use by", "", shared=True):
            pass
        with pytest.raises(OutputError, match="out is in use by"), file_lock(path, "out is in use by", ""):
            pass


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such lock")
def test_waiting_for_a_lock_ends_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other_process_holds(path) as holder:
        threading.Thread(target=holder.kill).start()
        with file_lock(path, "", "", wait=True):
            assert holder.wait() != 0


def test_a_lock_in_a_folder_that_is_missing_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"), file_lock(tmp_path / "no" / "lock", "", ""):
        pass


def test_an_array_file_with_a_damaged_header_is_a_data_error(tmp_path: Path) -> None:
    """numpy parses the header as Python: an open bracket in it was an internal error (tokenize.TokenError)."""
    path = tmp_path / "a.npy"
    np.save(path, np.arange(12).reshape(3, 4))
    good = path.read_bytes()
    assert np.array_equal(open_mapped(path, "Delete it."), np.arange(12).reshape(3, 4))
    shape = good.index(b"(3, 4)")
    for changed in (b"(3, 4 ", b"((3, 4", b"'3, 4'", b"(9, 9)", b"(3,\x00)", b"(-1,4)"):
        path.write_bytes(good[:shape] + changed + good[shape + 6 :])
        with pytest.raises(DataError, match="damaged") as caught:
            open_mapped(path, "Delete it.")
        assert caught.value.hint == "Delete it."
    for size in (0, 5, 20, len(good) - 8):
        path.write_bytes(good[:size])
        with pytest.raises(DataError, match="damaged"):
            open_mapped(path, "Delete it.")
