"""Helpers of the tests that run compiled kernels: whether this machine has them, and the number of their threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from elmo.kernels.cpu.abi import has_dtype
from elmo.kernels.cpu.build import CannotBuild


def missing_reason(dtype: str = "float32") -> str:
    """Why the compiled kernels for a dtype cannot be used here; "" if they can."""
    try:
        return "" if has_dtype(dtype) else f"this processor has no {dtype} products"
    except CannotBuild as error:
        return str(error)


needs_kernels = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())


@contextlib.contextmanager
def num_threads(count: int) -> Iterator[None]:
    """Sets the number of threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
