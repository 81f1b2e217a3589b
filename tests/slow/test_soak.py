"""Memory, descriptors and threads stay the same over many calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scale import scaled
from tiny_run import ENVIRONMENT

DRIVER = Path(__file__).with_name("soak.py")
NOISE = 8 << 20  # bytes that the allocator may keep
CALLS = {"embed": 4000, "threads": 1000, "load": 300, "commands": 100}


@pytest.mark.slow("soak")
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("kernels", ["", "torch"])
@pytest.mark.parametrize("work", CALLS)
def test_memory_descriptors_and_threads_do_not_grow(
    work: str, kernels: str, tmp_path: Path, record_property: Any
) -> None:
    count = scaled(CALLS[work], at_least=24)
    command = [sys.executable, str(DRIVER), work, str(count), str(tmp_path)]
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "2", "ELMO_KERNELS": kernels}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    record_property("calls", samples[-1]["calls"])
    settled = samples[len(samples) // 3 :]
    for what in ("descriptors", "threads"):
        assert {sample[what] for sample in settled} == {settled[0][what]}, samples
    growth = settled[-1]["bytes"] - settled[0]["bytes"]
    record_property("growth", f"{growth / 2**20:.1f} MB")
    assert growth < 0.03 * settled[0]["bytes"] + NOISE, samples
