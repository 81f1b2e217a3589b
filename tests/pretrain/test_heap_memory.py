"""Freed memory is kept by the process during training on the CPU; the page faults of allocations are counted."""

from __future__ import annotations

import sys

import pytest
import torch
from tiny_run import call

from elmo.pretrain.train.heap_memory import freed_memory_kept

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is a function of glibc")

COUNT = """
import ctypes, resource, sys
import numpy as np
from elmo.pretrain.train.heap_memory import freed_memory_kept

def faults(count=20):
    np.ones(40 << 20, dtype=np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        np.ones(40 << 20, dtype=np.uint8)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count

with freed_memory_kept(sys.argv[1]):
    inside = faults()
print(int(hasattr(ctypes.CDLL(None), "gnu_get_libc_version")), inside, faults())
"""


def count_faults(device: str, *variables: str) -> tuple[float, float]:
    """The page faults per allocation of 40 MB inside the context and after it, in a new process."""
    done = call("env", *variables, sys.executable, "-c", COUNT, device)
    assert done.returncode == 0, done.stderr
    is_glibc, inside, after = map(float, done.stdout.split())
    if not is_glibc:
        pytest.skip("the C library is not glibc")
    return inside, after


def test_freed_memory_is_kept_inside_the_context_alone() -> None:
    inside, after = count_faults("cpu")
    assert inside < after / 4  # the pages of earlier allocations serve the later ones
    assert after > 10  # huge pages of 2 MB at most: the memory is mapped anew for each allocation


def test_malloc_is_not_changed_for_other_devices() -> None:
    inside, _ = count_faults("cuda:0")
    assert inside > 10


def test_settings_of_the_environment_are_left_alone() -> None:
    inside, after = count_faults("cpu", "MALLOC_MMAP_THRESHOLD_=1000000")
    assert min(inside, after) > 10


def test_tensors_survive_the_end_of_the_context() -> None:
    with freed_memory_kept("cpu"):
        tensor = torch.arange(1 << 20)
    assert int(tensor.sum()) == (1 << 20) * ((1 << 20) - 1) // 2
