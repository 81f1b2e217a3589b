"""A full disk: every writer ends with one clear error, leaves nothing half-written, and never dies by a signal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_run import ENVIRONMENT

from elmo.errors import OutputError
from elmo.files import atomic_file, create_mapped

HERE = Path(__file__).parent
NEW_MOUNTS = ["unshare", "--mount", *([] if os.name != "nt" and os.getuid() == 0 else ["--map-root-user"])]
WRITERS = ["task cache", "prepare", "pretrain", "convert to elmo", "convert to hdf5", "cache"]
WRITERS += [f"embed {suffix}" for suffix in (".jsonl", ".npz", ".hdf5", ".safetensors", ".parquet")]


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("full_disk")
    mount = [*NEW_MOUNTS, "mount", "-t", "tmpfs", "none", str(folder)]
    if shutil.which("unshare") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small disk")
    command = [*NEW_MOUNTS, sys.executable, str(HERE / "fill_disk.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_one_clear_error_and_leaves_nothing_behind(attempts: list[dict[str, Any]], writer: str) -> None:
    own = [attempt for attempt in attempts if attempt["writer"] == writer]
    if writer == "embed .parquet" and any("pyarrow" in attempt["message"] for attempt in own):
        pytest.skip("pyarrow is not installed")
    assert own
    assert own[0]["status"] == 1  # the smallest disk is too small for every writer
    for attempt in own:
        assert attempt["status"] in (0, 1), attempt
        if attempt["status"] == 1:
            assert "the disk is full" in attempt["message"], attempt
            assert "MB are free" in attempt["message"], attempt
            assert "out" not in attempt["left"] or writer == "pretrain", attempt  # a training run keeps its folder
        assert not [name for name in attempt["left"] if ".partial" in name], attempt


def test_mapped_arrays_have_their_space_before_they_are_filled(attempts: list[dict[str, Any]]) -> None:
    failed = [a for a in attempts if a["writer"] == "cache" and a["status"] == 1]
    assert failed
    assert all("out.npy needs 0.4 MB" in attempt["message"] for attempt in failed)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on file sizes")
def test_a_mapped_array_beyond_the_limit_on_file_sizes_is_an_output_error(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\n"
        "from test_full_disk import map_array\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "map_array(sys.argv[1])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out.npy")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert done.stdout.startswith("a size limit")
    assert os.listdir(tmp_path) == []


def map_array(path: str) -> None:
    try:
        with atomic_file(path) as partial:
            create_mapped(partial, "float32", (1000, 1000))[:] = 1
    except OutputError as error:
        print("a size limit" if "needs 4.0 MB" in str(error) else str(error))
