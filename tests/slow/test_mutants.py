"""Files of every format with random changes: each is read or refused, without a signal, a hang or another exception."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scale import scaled
from tiny_run import ENVIRONMENT

DRIVER = Path(__file__).with_name("mutate_files.py")
COUNT = scaled(2000, at_least=20)  # of each format
FORMATS = [
    "hdf5", "safetensors", "safetensors, checksums repaired", "safetensors int8, checksums repaired", "zip",
    "zip, stored", "torch", "torch, old format", "tar.gz", "tar", "manylangs", "tensorflow",
    *(f"words{suffix}" for suffix in ("", ".gz", ".bz2", ".xz", ".zst")),
    *(f"text{suffix}" for suffix in ("", ".gz", ".bz2", ".xz", ".zst")),
    "word vectors", "parts of an embedding", "prepared text", "training checkpoint",
]  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of the mutants of each format. One process forks for all of them, because importing torch is slow."""
    folder = tmp_path_factory.mktemp("mutants")
    command = [sys.executable, str(DRIVER), str(folder), str(COUNT), *FORMATS]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {result["format"]: result for result in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow("mutants")
@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("form", FORMATS)
def test_mutated_files_are_read_or_refused(form: str, results: dict[str, dict[str, Any]], record_property: Any) -> None:
    if form.endswith(".zst"):
        pytest.importorskip("zstandard")
    result = results[form]
    text = "\n".join(result["output"])
    assert result["status"] == 0, f"{form}: exit status {result['status']}\n{text[-4000:]}"
    record_property("mutants", COUNT)
    record_property("refused", int(result["output"][-1].split()[1]))
