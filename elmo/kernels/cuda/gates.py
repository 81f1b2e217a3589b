"""The gates and cells of LSTM steps on CUDA, for training and embedding: one fused kernel, or two as a fallback.

On Hopper GPUs one fused kernel computes both (`gates_hopper`). On other GPUs, and for odd sizes, few rows and float32,
cuBLAS computes the gates and a Triton kernel the cells (`cells`). Shapes: LR = layers * directions of the wavefront,
T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch import Tensor

from elmo.kernels.cuda.cells import cell_forward

log = logging.getLogger(__name__)


class StepLauncher:
    """Launches steps that read rows [x; h] (LR, T, B, >= 2P) with one kernel matrix (LR, 2P, 4H) and bias (LR, 4H).

    `fused=False` uses two kernels even where the fused kernel is available.
    """

    def __init__(self, rows: Tensor, kernel: Tensor, bias: Tensor, *, fused: bool = True) -> None:
        self._rows, self._kernel, self._bias, self._fused = rows, kernel, bias, fused
        self._hopper: dict[tuple[int | None, int | None], Any] = {}  # start and stop of a slice of LR -> launcher
        self._products: Tensor | None = None  # buffer for products that the caller does not need

    @property
    def is_fused(self) -> bool:
        """Whether the fused kernel is used, as far as is known before the first launch."""
        return self._fused_launcher(slice(None)) is not None

    def step(
        self,
        t: int,
        before: Tensor,
        after: Tensor,
        inner: Tensor,
        products: Tensor | None = None,
        keep: Tensor | None = None,
        initial: Tensor | None = None,
        *,
        active: slice = slice(None),
        clip: float,
        forget_bias: float = 0.0,
    ) -> None:
        """Computes the cells `after`, which may be `before` itself, and `inner` = sigmoid(o) * tanh(c), all (LR, B, H).

        `products` (LR, B, 4H), if given, receives the matrix products without the bias. Where keep (LR, B) is 0, the
        step starts from the cells `initial` (LR, H; None: zero) instead of `before`. clip 0 means no clipping.
        `active` restricts the step to a slice of the first dimension; all tensors given here have its length.
        """
        hopper = self._fused_launcher(active)
        if hopper is not None:
            try:
                hopper.step(t, before, after, inner, products, keep, initial, clip=clip, forget_bias=forget_bias)
                return
            except Exception as error:  # Gluon is experimental: other Triton versions may reject it in unknown ways
                _disable_fused(error)
        depth, num_gates = self._kernel.shape[1:]
        if products is None:
            if self._products is None:
                self._products = inner.new_empty(len(self._kernel), inner.shape[1], num_gates)
            products = self._products[active]
        torch.bmm(self._rows[active, t, :, :depth], self._kernel[active], out=products)
        bias = self._bias[active]
        cell_forward(products, bias, before, after, inner, keep, initial, clip=clip, forget_bias=forget_bias)

    def _fused_launcher(self, active: slice) -> Any:
        """The launcher of the fused kernel for a slice of LR; None if the kernel does not apply or has failed."""
        bounds = active.start, active.stop
        if self._fused and not _failures and bounds not in self._hopper:
            self._hopper[bounds] = _hopper_launcher(self._rows[active], self._kernel[active], self._bias[active])
        return None if _failures else self._hopper.get(bounds)


_failures: list[str] = []  # error texts of the fused kernel; after the first one it is not tried again


def _disable_fused(error: Exception) -> None:
    log.warning("The fused kernel for gates and cells failed; two kernels are used instead: %s", error)
    _failures.append(str(error))  # only the text: the exception's traceback would keep many tensors alive


def _hopper_launcher(rows: Tensor, kernel: Tensor, bias: Tensor) -> Any:
    hopper = _hopper_module()
    if hopper is None or not hopper.is_supported(rows, kernel):
        return None
    try:
        return hopper.HopperStepLauncher(rows, kernel, bias)
    except Exception as error:  # as in `StepLauncher.step`
        _disable_fused(error)
        return None


@functools.cache
def _hopper_module() -> Any:
    try:
        from elmo.kernels.cuda import gates_hopper
    except Exception as error:  # this Triton has no Gluon, or an incompatible one
        log.info("The fused kernel for gates and cells is not available; two kernels are used: %s", error)
        return None
    return gates_hopper
