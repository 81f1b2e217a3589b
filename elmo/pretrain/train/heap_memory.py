"""Keeps freed memory in the process while a biLM trains on the CPU, instead of returning it to the system every time.

A training step allocates and frees hundreds of megabytes of activations. By default glibc maps each large block anew,
and the kernel fills it with zeros page by page: for preset tiny this takes as long as the arithmetic.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# parameters of mallopt, from malloc.h
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_KEEP_ALL = 2**31 - 1  # bytes at the end of the heap that are not returned
_DEFAULT_MMAP_MAX = 65536
_DEFAULT_TRIM = 64 << 20  # bytes; glibc arrives at this number by itself once large blocks have been freed


@contextmanager
def freed_memory_kept(device: str) -> Iterator[None]:
    """Inside this context, memory that is freed serves the next allocation of the process; at the end it is returned.

    This does nothing for other devices than the CPU, for other C libraries than glibc, and where the environment
    configures malloc.
    """
    libc = _glibc() if device == "cpu" else None
    if libc is None:
        yield
        return
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, _KEEP_ALL)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
        libc.mallopt(_TRIM_THRESHOLD, _DEFAULT_TRIM)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """The C library of this process if it is glibc and no variable of the environment configures its malloc."""
    configured = any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    if not sys.platform.startswith("linux") or configured:
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
