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

from elmo.kernels.cuda.cells import cell_forward

log = logging.getLogger(__name__)


class Steps:
    """Steps that read the same rows (D, T, B, at least 2P) with the same kernel (D, 2P, 4H) and bias (D, 4H).

    With `one` false, by two kernels even where one could do.
    """

    def __init__(self, rows: Tensor, kernel: Tensor, bias: Tensor, *, one: bool = True) -> None:
        self._rows, self._kernel, self._bias, self._one = rows, kernel, bias, one
        self._hopper: dict[tuple[int | None, int | None], Any] = {}  # by which of D
        self._products: Tensor | None = None  # where nobody keeps them

    @property
    def by_one_kernel(self) -> bool:
        """Whether one kernel makes gates and cells, as far as is known yet."""
        return self._by_one(slice(None)) is not None

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
        these: slice = slice(None),
        clip: float,
        forget_bias: float = 0.0,
    ) -> None:
        """Cells `after` (D, B, H), which may be `before` itself, and `inner` = sigmoid(o) * tanh(c) (D, B, H).

        The products, without the bias, are left in `products` (D, B, 4H) if given. Where keep (D, B) is 0 the cells
        before were `first` (D, H; None: zero). clip 0: none. With `these`, all of it of these of D alone.
        """
        hopper = self._by_one(these)
        if hopper is not None:
            try:
                hopper.step(t, before, after, inner, products, keep, first, clip=clip, forget_bias=forget_bias)
                return
            except Exception as error:  # its language is new: another Triton may refuse it in ways not known here
                _fail(error)
        depth, num_gates = self._kernel.shape[1:]
        if products is None:
            if self._products is None:
                self._products = inner.new_empty(len(self._kernel), inner.shape[1], num_gates)
            products = self._products[these]
        torch.bmm(self._rows[these, t, :, :depth], self._kernel[these], out=products)
        bias = self._bias[these]
        cell_forward(products, bias, before, after, inner, keep, first, clip=clip, forget_bias=forget_bias)

    def _by_one(self, these: slice) -> Any:
        """The steps of these by the kernel for both; None: it cannot make them, or failed."""
        which = these.start, these.stop
        if self._one and not _failures and which not in self._hopper:
            self._hopper[which] = _hopper_steps(self._rows[these], self._kernel[these], self._bias[these])
        return None if _failures else self._hopper.get(which)


_failures: list[str] = []  # of the kernel for both: after one it is not tried again


def _fail(error: Exception) -> None:
    log.warning("gates and cells are made by two kernels, the one for both failed: %s", error)
    _failures.append(str(error))  # not the error itself, which would hold on to every tensor on its way


def _hopper_steps(rows: Tensor, kernel: Tensor, bias: Tensor) -> Any:
    hopper = _hopper()
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
        from elmo.kernels.cuda import gates_hopper
    except Exception as error:  # a Triton without Gluon, or with another one
        log.info("gates and cells are made by two kernels: %s", error)
        return None
    return gates_hopper
