"""What LSTM steps on CUDA do with their rows [x; h], for training and embedding alike: gates, then cells.

On Hopper one kernel makes both (`gates_hopper`); elsewhere, for odd sizes, few rows and float32, cuBLAS makes the gates
and a Triton kernel the cells (`cells_cuda`). Shapes: D layers in flight times directions, T steps, B rows,
P projection, H cells.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch import Tensor

from elmo.kernels.cells_cuda import cell_forward

log = logging.getLogger(__name__)


class Steps:
    """Steps that read the same rows (D, T, B, at least 2P) with the same kernel (D, 2P, 4H) and bias (D, 4H).

    `scratch`: where steps that take turns share the buffer they may need. With `one` false, by two kernels even where
    one could do.
    """

    def __init__(
        self, rows: Tensor, kernel: Tensor, bias: Tensor, *, scratch: list[Tensor] | None = None, one: bool = True
    ) -> None:
        self._rows, self._kernel, self._bias = rows[..., : kernel.shape[1]], kernel, bias
        self._scratch = [] if scratch is None else scratch
        self._hopper: Any = _hopper_steps(rows, kernel, bias) if one else None

    @property
    def by_one_kernel(self) -> bool:
        """Whether one kernel makes gates and cells, as far as is known yet."""
        return self._hopper is not None and not _failures

    def step(
        self,
        t: int,
        before: Tensor,
        after: Tensor,
        inner: Tensor,
        products: Tensor | None = None,
        keep: Tensor | None = None,
        first: Tensor | None = None,
        *,
        clip: float,
        forget_bias: float = 0.0,
    ) -> None:
        """Cells `after` (D, B, H), which may be `before` itself, and `inner` = sigmoid(o) * tanh(c) (D, B, H).

        The products, without the bias, are left in `products` (D, B, 4H) if given. Where keep (D, B) is 0 the cells
        before were `first` (D, H; None: zero). clip 0: none.
        """
        if self.by_one_kernel:
            try:
                self._hopper.step(
                    t, before, after, inner, products, keep, first, clip=clip, forget_bias=forget_bias
                )  # fmt: skip
                return
            except Exception as error:  # its language is new: another Triton may refuse it in ways not known here
                _fail(error)
        if products is None:
            D, B, H = inner.shape
            if not self._scratch or len(self._scratch[-1]) < D:
                self._scratch.append(inner.new_empty(D, B, 4 * H))  # smaller ones stay: a graph may write to them
            products = self._scratch[-1][:D]
        torch.bmm(self._rows[:, t], self._kernel, out=products)
        cell_forward(products, self._bias, before, after, inner, keep, first, clip=clip, forget_bias=forget_bias)


_failures: list[str] = []  # of the kernel for both: after one it is not tried again


def _fail(error: Exception) -> None:
    log.warning("gates and cells are made by two kernels, the one for both failed: %s", error)
    _failures.append(str(error))  # not the error itself, which would hold on to every tensor on its way


def _hopper_steps(rows: Tensor, kernel: Tensor, bias: Tensor) -> Any:
    hopper = None if _failures else _hopper()
    if hopper is None or not hopper.fits(rows, kernel):
        return None
    try:
        return hopper.HopperSteps(rows, kernel, bias)
    except Exception as error:  # as in `Steps.step`
        _fail(error)
        return None


@functools.cache
def _hopper() -> Any:
    try:
        from elmo.kernels import gates_hopper
    except Exception as error:  # a Triton without Gluon, or with another one
        log.info("gates and cells are made by two kernels: %s", error)
        return None
    return gates_hopper
