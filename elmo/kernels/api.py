"""Lookup of the fastest implementation of an operation for a device, a dtype and a model.

    make_kernels = find_kernel("bilm", "cpu", "float32", model)
    if make_kernels is not None:
        kernels = make_kernels(model)

`elmo.model` holds the reference implementation in plain PyTorch. An implementation found here computes the same values
faster; None means that the caller uses plain PyTorch. Every implementation says which models it supports. The
environment variable ELMO_KERNELS selects: unset = the fastest, torch = PyTorch only, avx2 = at most AVX2 on x86-64,
off = no implementation. The choice is logged once, with the reason where a faster implementation cannot be used.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from elmo.errors import ConfigError
from elmo.kernels.cpu.build import choose_library
from elmo.kernels.cpu.levels import CannotBuild
from elmo.kernels.implementations import IMPLEMENTATIONS, Implementation

if TYPE_CHECKING:  # `elmo doctor` imports this module and must start without numpy and torch
    import numpy as np
    import torch
    from torch import Tensor

    from elmo.kernels.cpu.request import CpuRequest, CpuResult
    from elmo.kernels.cpu.train_lstm import TrainStacks
    from elmo.model.bilm import BiLM
    from elmo.model.head import Head, Normalizer
    from elmo.model.stacks import FusedStacks, StackRunner
    from elmo.model.token_encoder import StrongestWindows, TokenEncoder

log = logging.getLogger(__name__)

CHOICES = ("", "torch", "avx2", "off")


class CpuBiLM(Protocol):
    """A biLM whose weights are packed for the CPU, for inference ("bilm"). It may be pickled."""

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Token vectors (N, P) float32 of rows of ids (N, W)."""

    def contextualize(self, request: CpuRequest) -> CpuResult:
        """The chosen layers of every token of the request and, on request, the state after each sentence."""


class PendingTensor(Protocol):
    """A tensor that the device still computes or copies."""

    def wait(self) -> Tensor:
        """The tensor, once the caller may use it."""


class GpuBiLM(Protocol):
    """A biLM on a GPU, for inference over many sentences ("bilm_bulk"). Launches go to a stream of its own."""

    device: torch.device
    dtype: torch.dtype
    proj_dim: int

    def at_work(self) -> AbstractContextManager[Any]:
        """A context in which launches go to the implementation's stream; the methods below are called inside it."""

    def encode_into(self, table: Tensor, first: int, rows: np.ndarray) -> None:
        """Writes the token vectors of rows of ids (N, W) to table[first : first + N]."""

    def contextualize(
        self,
        table: Tensor,
        words: np.ndarray,
        lengths: np.ndarray,
        mix: np.ndarray,
        *,
        initial: tuple[Tensor, Tensor] | None = None,
        pooling: str | None = None,
    ) -> Tensor:
        """Chosen layers (K, N, D) of all words, or one pooled vector (K, D) per sentence."""

    def send(self, tensor: Tensor, *, to_host: bool) -> PendingTensor:
        """Starts the transfer of a tensor to the host, or hands it to the caller's stream."""


MakeCpuBiLM = Callable[["BiLM"], CpuBiLM]
MakeGpuBiLM = Callable[["BiLM"], GpuBiLM]
MakeStacks = Callable[[], "TrainStacks"]
TrainableEncoder = Callable[["TokenEncoder", "Tensor"], "Tensor"]  # rows of ids (N, W) to token vectors (N, P) float32
SampledCrossEntropy = Callable[["Tensor", "Tensor", "Tensor", "Tensor", "Tensor"], "Tensor"]


class SoftmaxLosses(Protocol):
    """The losses of all directions with their gradients, in bounded memory ("softmax_losses")."""

    def __call__(
        self,
        weight: Tensor,
        bias: Tensor,
        hidden: Tensor,
        targets: Tensor,
        ids: Tensor | None = None,
        log_counts: Tensor | None = None,
        true_log_counts: Tensor | None = None,
    ) -> Tensor:
        """Mean losses (R,) of states (R, N, P) and true words (R, N) against the words `ids` (R, S) or all words.

        The logarithms of expected counts, (R, S) and (R, N), are subtracted from the logits.
        """


@overload
def find_kernel(op: Literal["bilm"], device: str, dtype: str, model: BiLM | None = None) -> MakeCpuBiLM | None: ...
@overload
def find_kernel(op: Literal["bilm_bulk"], device: str, dtype: str, model: BiLM | None = None) -> MakeGpuBiLM | None: ...
@overload
def find_kernel(
    op: Literal["train_stacks"], device: str, dtype: str, model: BiLM | None = None
) -> MakeStacks | None: ...
@overload
def find_kernel(op: Literal["bilstm"], device: str, dtype: str, model: BiLM | None = None) -> FusedStacks | None: ...
@overload
def find_kernel(
    op: Literal["strongest_windows"], device: str, dtype: str, model: BiLM | None = None
) -> Callable[..., Tensor] | None: ...
@overload
def find_kernel(
    op: Literal["token_encoder"], device: str, dtype: str, model: BiLM | None = None
) -> TrainableEncoder | None: ...
@overload
def find_kernel(
    op: Literal["sampled_cross_entropy"], device: str, dtype: str, model: BiLM | None = None
) -> SampledCrossEntropy | None: ...
@overload
def find_kernel(
    op: Literal["newton_schulz"], device: str, dtype: str, model: BiLM | None = None
) -> Callable[[Tensor, tuple[float, float, float], int], Tensor] | None: ...
@overload
def find_kernel(
    op: Literal["log_normalizer"], device: str, dtype: str, model: BiLM | None = None
) -> Normalizer | None: ...
@overload
def find_kernel(
    op: Literal["softmax_losses"], device: str, dtype: str, model: BiLM | None = None
) -> SoftmaxLosses | None: ...


def find_kernel(op: str, device: str, dtype: str, model: BiLM | None = None) -> Callable[..., Any] | None:
    """The fastest implementation of an operation that supports the model; None: use plain PyTorch.

    Without a model, the first implementation that this machine can run. The first time that a faster implementation
    does not support a model, a warning says why.
    """
    for implementation in _available(op, device, dtype):
        reason = None if model is None else implementation.supports(model)
        if reason is None:
            return implementation.call
        _warn_unsupported(op, device.split(":")[0], dtype, reason)
    return None


def find_stacks(model: BiLM, device: str, dtype: str) -> StackRunner:
    """The fastest implementation of both LSTM stacks in training; plain PyTorch if there is no other."""
    from elmo.model.stacks import run_stacks_fused, run_stacks_plain

    fused = find_kernel("bilstm", device, dtype, model)
    if fused is not None:
        return functools.partial(run_stacks_fused, fused)
    make_stacks = find_kernel("train_stacks", device, dtype, model)
    return run_stacks_plain if make_stacks is None else make_stacks()


def find_log_probs(head: Head, hidden: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The fastest implementation of `head.log_probs`, for states like `hidden`, to be called without gradients."""
    from elmo.model.head import SoftmaxHead

    if not isinstance(head, SoftmaxHead) or head.weight.dtype != hidden.dtype:
        return head.log_probs
    normalizer = find_kernel("log_normalizer", hidden.device.type, str(hidden.dtype).removeprefix("torch."))
    return functools.partial(head.log_probs, normalizer=normalizer)


def find_strongest_windows(model: BiLM, device: torch.device, dtype: torch.dtype) -> StrongestWindows | None:
    """The implementation of the character convolutions that computes in `dtype`, as `TokenEncoder` takes it."""
    if model.token_encoder.chars is None:
        return None
    kernel = find_kernel("strongest_windows", device.type, str(dtype).removeprefix("torch."), model)
    return None if kernel is None else functools.partial(kernel, dtype=dtype)


def why_unsupported(op: str, device: str, dtype: str, model: BiLM) -> str | None:
    """Why the fastest implementation does not support a model; None: it does, or there is no implementation."""
    return next((implementation.supports(model) for implementation in _available(op, device, dtype)), None)


def requested_kernels() -> str:
    """The value of ELMO_KERNELS; "" if it is not set."""
    choice = os.environ.get("ELMO_KERNELS", "").lower()
    if choice not in CHOICES:
        raise ConfigError(f"ELMO_KERNELS is {choice!r}; expected {', '.join(CHOICES[1:])}, or nothing.")
    return choice


@contextlib.contextmanager
def kernels_set_to(choice: str) -> Iterator[None]:
    """Sets ELMO_KERNELS inside the context and restores it afterwards."""
    before = os.environ.get("ELMO_KERNELS")
    os.environ["ELMO_KERNELS"] = choice
    try:
        yield
    finally:
        os.environ.pop("ELMO_KERNELS")
        if before is not None:
            os.environ["ELMO_KERNELS"] = before


def describe() -> dict[str, str]:
    """The CPU kernels that `find_kernel` would use, for `elmo doctor`. Compiles nothing and writes nothing."""
    if requested_kernels() in ("off", "torch"):
        return {"cpu_kernels": f"{requested_kernels()} (ELMO_KERNELS)"}
    try:
        choice = choose_library()
    except CannotBuild as error:
        return {"cpu_kernels": f"torch: {error}"}
    origin = {"not compiled yet": "will be compiled at first use"}.get(choice.origin, choice.origin)
    return {"cpu_kernels": f"{choice.level.name}, {origin}: {choice.reason}", "cpu_kernels_path": str(choice.path)}


def _available(op: str, device: str, dtype: str) -> Iterator[Implementation]:
    choice = requested_kernels()
    loaders = {} if choice == "off" else IMPLEMENTATIONS.get((op, device.split(":")[0]), {})
    for load in loaders.get(dtype, ()):
        implementation = load(choice, dtype)
        if implementation is not None:
            yield implementation


@functools.cache  # one warning per reason
def _warn_unsupported(op: str, device: str, dtype: str, reason: str) -> None:
    log.warning("a slower implementation of %s is used on %s for %s: %s", op, device, dtype, reason)
