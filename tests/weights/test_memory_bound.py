"""All of loading is under one bound of memory, which comes from the size of what the user named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import bombs
import pytest
from tiny_run import ENVIRONMENT

LIMIT = 300 << 20  # bytes of address space that a read may take in addition
READ = f"""
import resource, sys
from pathlib import Path
from elmo.errors import WeightsError
from elmo.weights.formats import read_model
from elmo.weights.lookup import tiny_random

tiny_random()  # what is imported at the first use
pages = int(Path("/proc/self/statm").read_text().split()[0])
size = pages * resource.getpagesize() + {LIMIT}
resource.setrlimit(resource.RLIMIT_AS, (size, size))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_model(Path(sys.argv[1]))
    print("read")
except WeightsError as error:
    print("refused:", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("bomb", bombs.BOMBS)
def test_layers_that_each_expand_little_do_not_multiply(bomb: str, tmp_path: Path) -> None:
    """A zip of half a megabyte took 1.6 GB: the zip and the HDF5 file in it were each within their own limits."""
    path = bombs.BOMBS[bomb](tmp_path)
    assert path.stat().st_size < 1 << 20
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *message, peak = done.stdout.splitlines()
    assert message[0].startswith("refused: "), done.stdout
    assert "times its size" in done.stdout, done.stdout
    assert int(peak) < 150 << 20
