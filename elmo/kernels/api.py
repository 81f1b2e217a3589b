"""Faster twins of what `elmo.model` computes in plain form, found by operation, device and dtype.

    twin = kernels.find_kernel("bilm", "cpu", "float32")
    if twin is not None: fast = twin(model)

The plain versions define the truth; a twin gives the same numbers sooner, or there is none and `find` says None.
ELMO_KERNELS chooses: unset = the best there is, torch = PyTorch alone, avx2 = compiled for AVX2 only, off = no twins.
Which one was chosen, and why not a better one, is logged once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from elmo.errors import ConfigError
from elmo.kernels.cpu.build import CannotBuild, find_compiler, library_path, processor_level

log = logging.getLogger(__name__)

CHOICES = ("", "torch", "avx2", "off")
Maker = Callable[[str, str], Callable[..., Any] | None]  # ELMO_KERNELS's choice and a dtype to a twin, if it can


def find_kernel(op: str, device: str, dtype: str) -> Callable[..., Any] | None:
    """The best twin of an operation here, or None where only the plain version exists or ELMO_KERNELS=off."""
    choice = requested_kernels()
    makers = {} if choice == "off" else TWINS.get((op, device.split(":")[0]), {})
    return next((twin for maker in makers.get(dtype, ()) if (twin := maker(choice, dtype)) is not None), None)


def requested_kernels() -> str:
    """What ELMO_KERNELS says; "" where it says nothing."""
    choice = os.environ.get("ELMO_KERNELS", "").lower()
    if choice not in CHOICES:
        raise ConfigError(f"ELMO_KERNELS is {choice!r}; expected {', '.join(CHOICES[1:])}, or nothing.")
    return choice


@contextlib.contextmanager
def kernels_set_to(choice: str) -> Iterator[None]:
    """ELMO_KERNELS set to a choice inside, and as it was after."""
    before = os.environ.get("ELMO_KERNELS")
    os.environ["ELMO_KERNELS"] = choice
    try:
        yield
    finally:
        os.environ.pop("ELMO_KERNELS")
        if before is not None:
            os.environ["ELMO_KERNELS"] = before


def describe() -> dict[str, str]:
    """What `find` would use on this CPU, for `elmo doctor`. Nothing is compiled and nothing is written."""
    if requested_kernels() in ("off", "torch"):
        return {"cpu_kernels": f"{requested_kernels()} (ELMO_KERNELS)"}
    try:
        level = processor_level()
        path = library_path(level)
        if not path.exists():
            find_compiler()
    except CannotBuild as error:
        return {"cpu_kernels": f"torch: {error}"}
    when = "compiled" if path.exists() else "will be compiled at first use"
    return {"cpu_kernels": f"{level.name}, {when}", "cpu_kernels_path": str(path)}


def _native(choice: str, dtype: str) -> Callable[..., Any] | None:
    return None if choice == "torch" else _native_or_why(choice, dtype)


@functools.cache
def _native_or_why(choice: str, dtype: str) -> Callable[..., Any] | None:
    # remembered by choice and dtype: a failed compilation is tried, and complained about, once
    from elmo.kernels.cpu.abi import has_dtype
    from elmo.kernels.cpu.native import NativeBiLM

    try:
        if not has_dtype(dtype):
            raise CannotBuild(f"this processor has no {dtype} products")
    except CannotBuild as error:
        log.warning("no compiled CPU kernels for %s: %s", dtype, error)
        return None
    log.info("compiled CPU kernels (%s) for %s", processor_level().name, dtype)
    return functools.partial(NativeBiLM, dtype=dtype)


def _torch(choice: str, dtype: str) -> Callable[..., Any] | None:
    return _torch_or_why(dtype)


@functools.cache
def _torch_or_why(dtype: str) -> Callable[..., Any] | None:
    from elmo.kernels.cpu.pytorch import TorchBiLM, can_prepack

    prepacked = "prepacked" if can_prepack(dtype) else "plain: this torch cannot lay out weights for oneDNN"
    log.info("CPU kernels of PyTorch alone for %s (%s products)", dtype, prepacked)
    return functools.partial(TorchBiLM, dtype=dtype)


def _triton(module: str, name: str) -> Maker:
    @functools.cache
    def make(choice: str, dtype: str) -> Callable[..., Any] | None:
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        except ImportError as error:  # no Triton on this system
            log.warning("no CUDA kernels of ours (%s): %s", name, error)
            return None
        return found

    return lambda choice, dtype: None if choice == "torch" else make(choice, dtype)


def _on_gpu(module: str, name: str) -> dict[str, tuple[Maker, ...]]:
    maker = _triton(module, name)
    return dict.fromkeys(("float32", "bfloat16", "float16"), (maker,))


# operation and device -> dtype -> makers, best first
TWINS: dict[tuple[str, str], dict[str, tuple[Maker, ...]]] = {
    ("bilm", "cpu"): {"float32": (_native, _torch), "bfloat16": (_native, _torch), "int8": (_native,)},
    ("bilm_bulk", "cuda"): _on_gpu("elmo.kernels.cuda.bilm", "CudaBiLM"),
    ("bilstm", "cuda"): _on_gpu("elmo.kernels.cuda.lstm", "bilstm"),
    ("strongest_windows", "cuda"): _on_gpu("elmo.kernels.cuda.char_cnn", "strongest_windows"),
    ("sampled_cross_entropy", "cuda"): _on_gpu("elmo.kernels.cuda.softmax", "sampled_cross_entropy"),
}
