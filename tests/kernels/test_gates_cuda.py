"""Gates and cells of a step, by one kernel on Hopper and by two elsewhere.

Against double precision on fresh random inputs. The Hopper kernel is tested where there is one; the rest on CUDA or in
Triton's interpreter: see triton_here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from triton_here import DEVICE, HOPPER, MARKS

from elmo.kernels.cuda import gates as gates_cuda
from elmo.kernels.cuda.gates import Steps

pytestmark = MARKS

on_hopper = pytest.mark.skipif(not HOPPER, reason="the kernel is Hopper's")
GUARD = 3  # rows behind the last that nobody may touch


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-30))


class Case:
    """Random inputs of one step, and what it should give."""

    def __init__(
        self, sizes: tuple[int, int, int], dtype: torch.dtype, *, t: int = 1, D: int = 2, clip: float = 1.0
    ) -> None:
        self.B, H, P = sizes
        self.t, self.clip, self.forget_bias = t, clip, 0.7
        self.rows = torch.randn(D, 3, self.B, 2 * P + 64, device=DEVICE).to(dtype)
        self.kernel = (torch.randn(D, 2 * P, 4 * H, device=DEVICE) * (2 * P) ** -0.5).to(dtype)
        self.bias = torch.randn(D, 4 * H, device=DEVICE)
        self.before = torch.randn(D, self.B + GUARD, H, device=DEVICE)
        self.keep = (torch.rand(D, self.B, device=DEVICE) < 0.7).to(torch.uint8)
        self.first = torch.randn(D, H, device=DEVICE)

    def run(
        self,
        *,
        keeps: bool = True,
        starts: bool = True,
        stores: bool = True,
        in_place: bool = False,
        steps: Steps | None = None,
    ) -> Tensor:
        D, _, H = self.before.shape
        before = self.before.clone()
        after = before if in_place else torch.full_like(before, torch.nan)
        inner = torch.full((D, self.B + GUARD, H), torch.nan, device=DEVICE, dtype=self.rows.dtype)
        products = torch.full((D, self.B + GUARD, 4 * H), torch.nan, device=DEVICE, dtype=self.rows.dtype)
        (steps or Steps(self.rows, self.kernel, self.bias)).step(
            self.t, before[:, : self.B], after[:, : self.B], inner[:, : self.B],
            products[:, : self.B] if stores else None, self.keep if keeps else None, self.first if starts else None,
            clip=self.clip, forget_bias=self.forget_bias,
        )  # fmt: skip
        behind = [inner[:, self.B :].float(), products[:, self.B :].float()]
        assert all(torch.isnan(rows).all() for rows in behind), "rows behind the last were written"
        assert in_place or torch.isnan(after[:, self.B :]).all()
        found = [after[:, : self.B], inner[:, : self.B].float()]
        return torch.cat([*found, products[:, : self.B].float()] if stores else found, dim=-1)

    def truth(self, *, keeps: bool = True, starts: bool = True, stores: bool = True) -> Tensor:
        products = self.rows[:, self.t, :, : self.kernel.shape[1]].double() @ self.kernel.double()
        i, j, f, o = (products + self.bias.double()[:, None]).chunk(4, dim=-1)
        c = self.before[:, : self.B].double()
        if keeps:
            start = self.first.double()[:, None] if starts else torch.zeros_like(c)
            c = torch.where(self.keep[..., None] != 0, c, start)
        c = torch.sigmoid(f + self.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        c = c.clamp(-self.clip, self.clip) if self.clip else c
        found = [c, torch.sigmoid(o) * torch.tanh(c)]
        return torch.cat([*found, products] if stores else found, dim=-1)


@pytest.mark.parametrize("sizes", [(1, 16, 8), (5, 48, 24), (130, 64, 32)])
@pytest.mark.parametrize("keeps", [False, True])
def test_two_kernels_equal_double_precision(sizes, keeps) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    case = Case(sizes, torch.float32)
    assert relative(case.run(keeps=keeps, starts=False), case.truth(keeps=keeps, starts=False)) < 1e-6


@pytest.fixture
def one_kernel(monkeypatch) -> Iterator[None]:
    """Steps of any number of rows take the kernel for both, and it did not fail."""
    monkeypatch.setattr("elmo.kernels.cuda.gates_hopper.FEWEST_ROWS", 1)
    monkeypatch.setattr(gates_cuda, "_failures", [])
    yield
    assert not gates_cuda._failures


@on_hopper
@pytest.mark.usefixtures("one_kernel")
@pytest.mark.parametrize("t", [0, 2])
@pytest.mark.parametrize(
    "sizes",
    # a row; tiles cut in both ways; a tile each; more than one; whole and cut ones, narrow and wide
    [(1, 64, 32), (100, 256, 64), (129, 512, 96), (128, 4096, 512), (1000, 1024, 128), (300, 4096, 512)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "options",
    [
        {"keeps": True, "starts": False, "stores": True},
        {"keeps": True, "starts": True, "stores": False},
        {"keeps": False, "starts": False, "stores": True},
    ],
    ids=["training", "embedding", "nothing forgotten"],
)
def test_the_hopper_kernel_equals_double_precision(sizes, dtype, options, t) -> None:
    case = Case(sizes, dtype, t=t)
    assert Steps(case.rows, case.kernel, case.bias).by_one_kernel
    found, truth = case.run(**options), case.truth(**options)
    assert torch.isfinite(found).all()
    assert relative(found, truth) < {torch.bfloat16: 4e-3, torch.float16: 5e-4}[dtype]
    assert (found - truth).abs().max() < {torch.bfloat16: 0.06, torch.float16: 0.008}[dtype]


@on_hopper
@pytest.mark.usefixtures("one_kernel")
@pytest.mark.parametrize("t", [0, 2])
@pytest.mark.parametrize(("sizes", "D"), [((260, 512, 64), 1), ((1024, 4096, 512), 2)])  # one tile a program; eight
def test_the_hopper_kernel_knows_no_clip_and_cells_in_place(sizes, D, t) -> None:
    case = Case(sizes, torch.bfloat16, t=t, D=D, clip=0.0)
    assert relative(case.run(in_place=True), case.truth()) < 4e-3


@on_hopper
@pytest.mark.usefixtures("one_kernel")
def test_the_hopper_kernel_counts_beyond_32_bits() -> None:
    """Buffers as large as four layers of long texts have: those of one direction begin 2^29 numbers after another's."""
    case = Case((128, 256, 64), torch.bfloat16, D=6)
    D, B, H = 6, 128, 256
    gates = torch.empty(D, 2**29, device=DEVICE, dtype=torch.bfloat16)
    products = gates[:, : B * 4 * H].view(D, B, 4 * H)
    after, inner = torch.empty(D, B, H, device=DEVICE), torch.empty(D, B, H, device=DEVICE, dtype=torch.bfloat16)
    Steps(case.rows, case.kernel, case.bias).step(
        case.t, case.before[:, :B], after, inner, products, case.keep, None, clip=case.clip, forget_bias=0.7
    )
    found = torch.cat([after, inner.float(), products.float()], dim=-1)
    assert relative(found, case.truth(starts=False)) < 4e-3


@on_hopper
@pytest.mark.usefixtures("one_kernel")
def test_the_hopper_kernel_gives_the_same_numbers_again() -> None:
    case = Case((1024, 4096, 512), torch.bfloat16)
    first = case.run()
    for _ in range(20):  # a race would show sooner or later
        assert torch.equal(case.run(), first)


@on_hopper
@pytest.mark.usefixtures("one_kernel")
def test_the_hopper_kernel_keeps_what_is_not_a_number_visible() -> None:
    case = Case((140, 256, 64), torch.bfloat16)
    case.rows[1, case.t, 5, 3] = torch.nan
    found = case.run(stores=False)
    assert torch.isnan(found[1, 5]).all()
    assert torch.isfinite(found[1, :5]).all()
    assert torch.isfinite(found[0]).all()


def test_a_kernel_that_fails_is_replaced_by_two_and_not_tried_again(monkeypatch, caplog) -> None:
    tries = []

    class Failing:
        def __init__(self, *given: Tensor) -> None:
            pass

        def step(self, *given: object, **settings: object) -> None:
            tries.append(1)
            raise TypeError("warp_specialize() takes two arguments")

    monkeypatch.setattr(gates_cuda, "_failures", [])
    fake = SimpleNamespace(fits=lambda rows, kernel: True, HopperSteps=Failing)
    monkeypatch.setattr(gates_cuda, "_hopper", lambda: fake)
    case = Case((5, 48, 24), torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = False
    made = [Steps(case.rows, case.kernel, case.bias) for _ in range(3)]  # as a stack of layers makes them
    assert all(steps.by_one_kernel for steps in made)
    with caplog.at_level(logging.WARNING):
        for steps in made:
            assert relative(case.run(steps=steps), case.truth()) < 1e-6
        assert relative(case.run(), case.truth()) < 1e-6
    assert len(tries) == len(caplog.records) == 1
    assert not any(steps.by_one_kernel for steps in made)
