"""The gates and cells of an LSTM step against double precision: the fused Hopper kernel and the two kernels.

The Hopper kernel is tested on Hopper GPUs only; the rest runs on CUDA or in Triton's interpreter: see triton_here.
Shapes: LR layers * directions, B rows, P projection, H cells.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from triton_here import DEVICE, HOPPER, MARKS

from elmo.kernels.cuda import gates as cuda_gates
from elmo.kernels.cuda.gates import StepLauncher

pytestmark = MARKS

needs_hopper = pytest.mark.skipif(not HOPPER, reason="the fused kernel needs a Hopper GPU")
NUM_GUARD_ROWS = 3  # rows after the last one that no kernel may write


def relative_error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.double(), expected.double()
    return float((actual - expected).norm() / expected.norm().clamp(min=1e-30))


class Case:
    """Random inputs of one step, and the expected result."""

    def __init__(
        self, sizes: tuple[int, int, int], dtype: torch.dtype, *, t: int = 1, LR: int = 2, clip: float = 1.0
    ) -> None:
        self.B, H, P = sizes
        self.t, self.clip, self.forget_bias = t, clip, 0.7
        self.rows = torch.randn(LR, 3, self.B, 2 * P + 64, device=DEVICE).to(dtype)
        self.kernel = (torch.randn(LR, 2 * P, 4 * H, device=DEVICE) * (2 * P) ** -0.5).to(dtype)
        self.bias = torch.randn(LR, 4 * H, device=DEVICE)
        self.before = torch.randn(LR, self.B + NUM_GUARD_ROWS, H, device=DEVICE)
        self.keep = (torch.rand(LR, self.B, device=DEVICE) < 0.7).to(torch.uint8)
        self.initial = torch.randn(LR, H, device=DEVICE)

    def run(
        self,
        *,
        keep: bool = True,
        initial: bool = True,
        products: bool = True,
        in_place: bool = False,
        launcher: StepLauncher | None = None,
    ) -> Tensor:
        LR, _, H = self.before.shape
        before = self.before.clone()
        after = before if in_place else torch.full_like(before, torch.nan)
        inner = torch.full((LR, self.B + NUM_GUARD_ROWS, H), torch.nan, device=DEVICE, dtype=self.rows.dtype)
        stored = torch.full((LR, self.B + NUM_GUARD_ROWS, 4 * H), torch.nan, device=DEVICE, dtype=self.rows.dtype)
        (launcher or StepLauncher(self.rows, self.kernel, self.bias)).step(
            self.t, before[:, : self.B], after[:, : self.B], inner[:, : self.B],
            stored[:, : self.B] if products else None, self.keep if keep else None, self.initial if initial else None,
            clip=self.clip, forget_bias=self.forget_bias,
        )  # fmt: skip
        guards = [inner[:, self.B :].float(), stored[:, self.B :].float()]
        assert all(torch.isnan(rows).all() for rows in guards), "rows after the last one were written"
        assert in_place or torch.isnan(after[:, self.B :]).all()
        results = [after[:, : self.B], inner[:, : self.B].float()]
        return torch.cat([*results, stored[:, : self.B].float()] if products else results, dim=-1)

    def expected(self, *, keep: bool = True, initial: bool = True, products: bool = True) -> Tensor:
        gates = self.rows[:, self.t, :, : self.kernel.shape[1]].double() @ self.kernel.double()
        i, j, f, o = (gates + self.bias.double()[:, None]).chunk(4, dim=-1)
        c = self.before[:, : self.B].double()
        if keep:
            start = self.initial.double()[:, None] if initial else torch.zeros_like(c)
            c = torch.where(self.keep[..., None] != 0, c, start)
        c = torch.sigmoid(f + self.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        c = c.clamp(-self.clip, self.clip) if self.clip else c
        results = [c, torch.sigmoid(o) * torch.tanh(c)]
        return torch.cat([*results, gates] if products else results, dim=-1)


@pytest.mark.parametrize("sizes", [(1, 16, 8), (5, 48, 24), (130, 64, 32)])
@pytest.mark.parametrize("keep", [False, True])
def test_two_kernels_equal_double_precision(sizes, keep) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    case = Case(sizes, torch.float32)
    assert relative_error(case.run(keep=keep, initial=False), case.expected(keep=keep, initial=False)) < 1e-6


@pytest.fixture
def fused_kernel(monkeypatch) -> Iterator[None]:
    """Steps of any number of rows use the fused kernel, and it does not fail."""
    monkeypatch.setattr("elmo.kernels.cuda.gates_hopper.MIN_ROWS", 1)
    monkeypatch.setattr(cuda_gates, "_failures", [])
    yield
    assert not cuda_gates._failures


@needs_hopper
@pytest.mark.usefixtures("fused_kernel")
@pytest.mark.parametrize("t", [0, 2])
@pytest.mark.parametrize(
    "sizes",
    # one row; partial tiles in both dimensions; one tile per program; several; full and partial ones, narrow and wide
    [(1, 64, 32), (100, 256, 64), (129, 512, 96), (128, 4096, 512), (1000, 1024, 128), (300, 4096, 512)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "options",
    [
        {"keep": True, "initial": False, "products": True},
        {"keep": True, "initial": True, "products": False},
        {"keep": False, "initial": False, "products": True},
    ],
    ids=["training", "embedding", "no resets"],
)
def test_hopper_kernel_equals_double_precision(sizes, dtype, options, t) -> None:
    case = Case(sizes, dtype, t=t)
    assert StepLauncher(case.rows, case.kernel, case.bias).is_fused
    actual, expected = case.run(**options), case.expected(**options)
    assert torch.isfinite(actual).all()
    assert relative_error(actual, expected) < {torch.bfloat16: 4e-3, torch.float16: 5e-4}[dtype]
    assert (actual - expected).abs().max() < {torch.bfloat16: 0.06, torch.float16: 0.008}[dtype]


@needs_hopper
@pytest.mark.usefixtures("fused_kernel")
@pytest.mark.parametrize("t", [0, 2])
@pytest.mark.parametrize(("sizes", "LR"), [((260, 512, 64), 1), ((1024, 4096, 512), 2)])  # one tile per program; eight
def test_hopper_kernel_without_clip_and_with_cells_in_place(sizes, LR, t) -> None:
    case = Case(sizes, torch.bfloat16, t=t, LR=LR, clip=0.0)
    assert relative_error(case.run(in_place=True), case.expected()) < 4e-3


@needs_hopper
@pytest.mark.usefixtures("fused_kernel")
def test_hopper_kernel_indexes_beyond_32_bits() -> None:
    """Buffers as large as those of four layers and long texts: the stride along LR is 2^29 values."""
    case = Case((128, 256, 64), torch.bfloat16, LR=6)
    LR, B, H = 6, 128, 256
    gates = torch.empty(LR, 2**29, device=DEVICE, dtype=torch.bfloat16)
    products = gates[:, : B * 4 * H].view(LR, B, 4 * H)
    after, inner = torch.empty(LR, B, H, device=DEVICE), torch.empty(LR, B, H, device=DEVICE, dtype=torch.bfloat16)
    StepLauncher(case.rows, case.kernel, case.bias).step(
        case.t, case.before[:, :B], after, inner, products, case.keep, None, clip=case.clip, forget_bias=0.7
    )
    actual = torch.cat([after, inner.float(), products.float()], dim=-1)
    assert relative_error(actual, case.expected(initial=False)) < 4e-3


@needs_hopper
@pytest.mark.usefixtures("fused_kernel")
def test_hopper_kernel_is_deterministic() -> None:
    case = Case((1024, 4096, 512), torch.bfloat16)
    first = case.run()
    for _ in range(20):  # a race would show sooner or later
        assert torch.equal(case.run(), first)


@needs_hopper
@pytest.mark.usefixtures("fused_kernel")
def test_hopper_kernel_propagates_nan() -> None:
    case = Case((140, 256, 64), torch.bfloat16)
    case.rows[1, case.t, 5, 3] = torch.nan
    actual = case.run(products=False)
    assert torch.isnan(actual[1, 5]).all()
    assert torch.isfinite(actual[1, :5]).all()
    assert torch.isfinite(actual[0]).all()


def test_failing_fused_kernel_is_replaced_by_two_kernels_and_not_tried_again(monkeypatch, caplog) -> None:
    calls = []

    class FailingLauncher:
        def __init__(self, *tensors: Tensor) -> None:
            pass

        def step(self, *tensors: object, **settings: object) -> None:
            calls.append(1)
            raise TypeError("warp_specialize() takes two arguments")

    monkeypatch.setattr(cuda_gates, "_failures", [])
    module = SimpleNamespace(is_supported=lambda rows, kernel: True, HopperStepLauncher=FailingLauncher)
    monkeypatch.setattr(cuda_gates, "_hopper_module", lambda: module)
    case = Case((5, 48, 24), torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = False
    launchers = [StepLauncher(case.rows, case.kernel, case.bias) for _ in range(3)]  # as a stack of layers makes them
    assert all(launcher.is_fused for launcher in launchers)
    with caplog.at_level(logging.WARNING):
        for launcher in launchers:
            assert relative_error(case.run(launcher=launcher), case.expected()) < 1e-6
        assert relative_error(case.run(), case.expected()) < 1e-6
    assert len(calls) == len(caplog.records) == 1
    assert not any(launcher.is_fused for launcher in launchers)
