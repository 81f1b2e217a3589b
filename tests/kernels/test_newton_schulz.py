"""The compiled Newton-Schulz iteration compared with the plain one: random shapes, batches, threads."""

from __future__ import annotations

import pytest
import torch
from compiled_kernels import needs_kernels, num_threads
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmo.kernels.api import find_kernel, kernels_set_to
from elmo.kernels.cpu.newton_schulz import iterate
from elmo.pretrain.train.muon import COEFFICIENTS, newton_schulz

TOLERANCE = 5e-6  # float32 sums in another order, five times; singular values are about 1


pytestmark = needs_kernels


def plain(matrices: Tensor) -> Tensor:
    with kernels_set_to("off"):
        return newton_schulz(matrices)


def compiled(matrices: Tensor, count: int = 1) -> Tensor:
    with num_threads(count):
        return newton_schulz(matrices)


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 4), rows=st.integers(1, 200), columns=st.integers(1, 300), seed=st.integers(0, 1000))
def test_result_equals_the_plain_one(count: int, rows: int, columns: int, seed: int) -> None:
    matrices = torch.randn(count, rows, columns, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(compiled(matrices), plain(matrices), rtol=0, atol=TOLERANCE)


def test_build_for_avx2_equals_the_plain_result() -> None:
    matrices = torch.randn(2, 150, 170, generator=torch.Generator().manual_seed(0))
    with kernels_set_to("avx2"):
        result = newton_schulz(matrices)
    torch.testing.assert_close(result, plain(matrices), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("shape", [(3, 300, 430), (1, 64, 64), (5, 20, 33)])
def test_results_are_the_same_bits_for_any_number_of_threads(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected = compiled(matrices)
    assert all(torch.equal(compiled(matrices, count), expected) for count in (2, 3, 7))


def test_argument_is_not_changed() -> None:
    matrices = torch.randn(2, 8, 9, generator=torch.Generator().manual_seed(0)) / 10
    before = matrices.clone()
    iterate(matrices, COEFFICIENTS, 5)
    assert torch.equal(matrices, before)


def test_value_that_is_not_a_number_stays_in_its_matrix() -> None:
    matrices = torch.randn(2, 30, 40, generator=torch.Generator().manual_seed(0))
    matrices[0, 3, 4] = torch.nan
    result = compiled(matrices)
    assert bool(result[0].isnan().all())
    assert bool(result[1].isfinite().all())


def test_kernel_can_be_switched_off() -> None:
    assert find_kernel("newton_schulz", "cpu", "float32") is not None
    with kernels_set_to("off"):
        assert find_kernel("newton_schulz", "cpu", "float32") is None
