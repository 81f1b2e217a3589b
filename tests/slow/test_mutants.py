"""Files of every format with random changes: each is read or refused, without a signal, a hang or another exception."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scale import scaled
from tiny_run import ENVIRONMENT

DRIVER = Path(__file__).with_name("mutate_files.py")
FORMATS = [
    "hdf5", "safetensors", "safetensors, checksums repaired", "safetensors int8, checksums repaired", "zip",
    "zip, stored", "torch", "torch, old format", "tar.gz", "tar", "manylangs", "tensorflow",
    *(f"words{suffix}" for suffix in ("", ".gz", ".bz2", ".xz", ".zst")),
    *(f"text{suffix}" for suffix in ("", ".gz", ".bz2", ".xz", ".zst")),
    "word vectors", "parts of an embedding", "prepared text", "training checkpoint",
]  # fmt: skip


@pytest.mark.slow("mutants")
@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform == "win32", reason="limits the memory")
@pytest.mark.parametrize("form", FORMATS)
def test_mutated_files_are_read_or_refused(form: str, tmp_path: Path, record_property: Any) -> None:
    if form.endswith(".zst"):
        pytest.importorskip("zstandard")
    count = scaled(2000, at_least=20)
    command = [sys.executable, str(DRIVER), form, str(tmp_path), "0", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    lines = done.stdout.splitlines()
    seed = lines[-1] if lines else "none"
    assert done.returncode == 0, f"{form}, seed {seed}: exit {done.returncode}\n{done.stderr[-4000:]}"
    record_property("mutants", count)
    record_property("refused", int(seed.split()[1]))
