"""What LSTM steps on CUDA do with their rows [x; h], for training and embedding alike: gates, then cells.

On Hopper one kernel makes both (`gates_hopper`); elsewhere, for odd sizes and float32, cuBLAS makes the gates and a
Triton kernel the cells (`cells_cuda`). Shapes: D directions, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

import functools
import logging
from types import ModuleType

import torch
from torch import Tensor

from elmo.kernels.cells_cuda import cell_forward

log = logging.getLogger(__name__)


class Steps:
    """Steps that read the same rows (D, T, B, at least 2P) with the same kernel (D, 2P, 4H) and bias (D, 4H).

    With `one` false, by two kernels even where one could do.
    """

    def __init__(self, rows: Tensor, kernel: Tensor, bias: Tensor, *, one: bool = True) -> None:
        self._rows, self._kernel, self._bias = rows[..., : kernel.shape[1]], kernel, bias
        hopper = _hopper() if one and not _failures else None
        self._hopper = hopper.HopperSteps(rows, kernel, bias) if hopper and hopper.fits(rows, kernel) else None
        self._products: Tensor | None = None

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
        if self._hopper is not None:
            try:
                self._hopper.step(
                    t, before, after, inner, products, keep, first, clip=clip, forget_bias=forget_bias
                )  # fmt: skip
                return
            except Exception as error:  # its language is new: another Triton may refuse it in ways not known here
                log.warning("gates and cells are made by two kernels, the one for both failed: %s", error)
                _failures.append(error)
                self._hopper = None
        if products is None:
            products = self._scratch(inner)
        torch.bmm(self._rows[:, t], self._kernel, out=products)
        cell_forward(products, self._bias, before, after, inner, keep, first, clip=clip, forget_bias=forget_bias)

    def _scratch(self, inner: Tensor) -> Tensor:
        if self._products is None:
            D, B, H = inner.shape
            self._products = inner.new_empty(D, B, 4 * H)
        return self._products


_failures: list[Exception] = []  # of the kernel for both: after one it is not tried again


@functools.cache
def _hopper() -> ModuleType | None:
    try:
        from elmo.kernels import gates_hopper
    except ImportError as error:  # a Triton without Gluon
        log.info("gates and cells are made by two kernels: %s", error)
        return None
    return gates_hopper
