"""The table of fast implementations: for an operation, a device and a dtype, how each of them is loaded.

A loader imports its module when it is called, and returns None where this machine cannot run the implementation.
`elmo.kernels.api` chooses from the table.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from elmo.kernels.cpu.levels import CannotBuild, processor_level

if TYPE_CHECKING:  # `elmo doctor` imports this module and must start without numpy and torch
    from elmo.model.bilm import BiLM

log = logging.getLogger(__name__)


class Implementation(NamedTuple):
    """One implementation of an operation that this machine can run."""

    call: Callable[..., Any]  # the function, or the class to construct
    supports: Callable[[BiLM], str | None]  # why a model cannot use it; None: the model is supported


Loader = Callable[[str, str], Implementation | None]  # (value of ELMO_KERNELS, dtype); None: not on this machine


def _load_native(choice: str, dtype: str) -> Implementation | None:
    if not _has_native(choice, dtype):
        return None
    from elmo.kernels.cpu.native import NativeBiLM

    return Implementation(functools.partial(NativeBiLM, dtype=dtype), NativeBiLM.supports)


def _load_native_softmax(choice: str, dtype: str) -> Implementation | None:
    if not _has_native(choice, dtype):
        return None
    from elmo.kernels.cpu.train_softmax import softmax_losses, supports

    return Implementation(softmax_losses, supports)


def _load_newton_schulz(choice: str, dtype: str) -> Implementation | None:
    if not _has_native(choice, dtype):
        return None
    from elmo.kernels.cpu.newton_schulz import iterate

    return Implementation(iterate, lambda model: None)


def _load_log_normalizer(choice: str, dtype: str) -> Implementation | None:
    if not _has_native(choice, dtype):
        return None
    from elmo.kernels.cpu.log_normalizer import log_normalizer

    return Implementation(log_normalizer, lambda model: None)


@functools.cache  # by choice and dtype: a compilation that fails is tried and logged once
def _has_native(choice: str, dtype: str) -> bool:
    """Whether the compiled kernels for the CPU have products in this dtype; compiles them if necessary."""
    if choice == "torch":
        return False
    from elmo.kernels.cpu.abi import has_dtype

    try:
        if not has_dtype(dtype):
            raise CannotBuild(f"the kernels for {processor_level().name} have no {dtype} products")
    except CannotBuild as error:
        log.warning("no compiled CPU kernels for %s: %s", dtype, error)
        return False
    log.info("compiled CPU kernels (%s) for %s", processor_level().name, dtype)
    return True


def _load_stacks(choice: str, dtype: str) -> Implementation | None:
    if not _has_native(choice, dtype):
        return None
    from elmo.kernels.cpu.train_lstm import TrainStacks

    return Implementation(functools.partial(TrainStacks, dtype), TrainStacks.supports)


def _load_encoder(choice: str, dtype: str) -> Implementation | None:
    return None if not _has_native(choice, dtype) else _make_encoder(choice, dtype)


@functools.cache  # by choice and dtype: the object keeps its memory from step to step
def _make_encoder(choice: str, dtype: str) -> Implementation:
    from elmo.kernels.cpu.train_encoder import TrainingEncoder, supports

    return Implementation(TrainingEncoder(dtype), supports)


def _load_torch(choice: str, dtype: str) -> Implementation | None:
    return _import_torch(dtype)


@functools.cache  # the log line is written once
def _import_torch(dtype: str) -> Implementation:
    from elmo.kernels.cpu.pytorch import TorchBiLM, can_prepack

    products = "prepacked" if can_prepack(dtype) else "not prepacked: this torch cannot lay out weights for oneDNN"
    log.info("CPU kernels in PyTorch for %s (weights %s)", dtype, products)
    return Implementation(functools.partial(TorchBiLM, dtype=dtype), TorchBiLM.supports)


def _on_cuda(module: str, name: str, supports: str) -> dict[str, tuple[Loader, ...]]:
    """dtype -> loader of a Triton implementation; `supports` names its check in `elmo.kernels.cuda.supports`."""

    @functools.cache
    def load() -> Implementation | None:
        try:
            call: Callable[..., Any] = getattr(importlib.import_module(module), name)
        except ImportError as error:  # Triton is not installed
            log.warning("no CUDA kernel for %s: %s", name, error)
            return None
        return Implementation(call, getattr(importlib.import_module("elmo.kernels.cuda.supports"), supports))

    def loader(choice: str, dtype: str) -> Implementation | None:
        return None if choice == "torch" else load()

    return dict.fromkeys(("float32", "bfloat16", "float16"), (loader,))


# (operation, device) -> dtype -> loaders, the fastest implementation first
IMPLEMENTATIONS: dict[tuple[str, str], dict[str, tuple[Loader, ...]]] = {
    ("bilm", "cpu"): {
        "float32": (_load_native, _load_torch),
        "bfloat16": (_load_native, _load_torch),
        "int8": (_load_native,),
    },
    ("train_stacks", "cpu"): dict.fromkeys(("float32", "bfloat16"), (_load_stacks,)),
    ("softmax_losses", "cpu"): dict.fromkeys(("float32", "bfloat16"), (_load_native_softmax,)),
    ("token_encoder", "cpu"): dict.fromkeys(("float32", "bfloat16"), (_load_encoder,)),
    ("newton_schulz", "cpu"): {"float32": (_load_newton_schulz,)},
    ("log_normalizer", "cpu"): {"float32": (_load_log_normalizer,)},
    ("bilm_bulk", "cuda"): _on_cuda("elmo.kernels.cuda.bilm", "CudaBiLM", "all_models"),
    ("bilstm", "cuda"): _on_cuda("elmo.kernels.cuda.lstm", "bilstm", "projected_lstms"),
    ("strongest_windows", "cuda"): _on_cuda("elmo.kernels.cuda.char_cnn", "strongest_windows", "short_tokens"),
    ("sampled_cross_entropy", "cuda"): _on_cuda("elmo.kernels.cuda.softmax", "sampled_cross_entropy", "all_models"),
}
