"""The compiled normalizer of the full softmax compared with float64: random shapes, large logits, threads."""

from __future__ import annotations

import pytest
import torch
from compiled_kernels import needs_kernels, num_threads
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmo.kernels.api import find_log_probs, kernels_set_to
from elmo.kernels.cpu.log_normalizer import log_normalizer
from elmo.model.head import AdaptiveHead, SoftmaxHead

pytestmark = needs_kernels
UNIT = 2.0**-24


def sample(V: int, P: int, N: int, scale: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(V, P, generator=generator), torch.randn(V, generator=generator)
    return weight, bias, scale * torch.randn(N, P, generator=generator)


def exact(weight: Tensor, bias: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The normalizers in float64, and a bound of the rounding errors of products in float32."""
    weight, bias, hidden = weight.double(), bias.double(), hidden.double()
    terms = hidden.abs() @ weight.abs().T + bias.abs()  # (N, V)
    bound = UNIT * (hidden.shape[1] + 8) * terms.max(dim=-1).values + 1e-6
    return (hidden @ weight.T + bias).logsumexp(dim=-1), bound


@settings(max_examples=30, deadline=None)
@given(
    V=st.one_of(st.integers(1, 300), st.sampled_from([1023, 1024, 1025, 2500])),
    P=st.one_of(st.integers(1, 140), st.sampled_from([256, 300])),
    N=st.one_of(st.integers(1, 140), st.just(64)),
    scale=st.sampled_from([0.01, 1.0, 5.0, 100.0]),
    seed=st.integers(0, 1000),
)
def test_result_equals_float64_within_rounding(V: int, P: int, N: int, scale: float, seed: int) -> None:
    weight, bias, hidden = sample(V, P, N, scale, seed)
    expected, bound = exact(weight, bias, hidden)
    error = (log_normalizer(weight, bias, hidden).double() - expected).abs()
    assert bool((error <= bound).all()), float((error / bound).max())


@pytest.mark.parametrize("level", ["", "avx2"])
def test_states_do_not_depend_on_each_other_or_on_threads(level: str) -> None:
    weight, bias, hidden = sample(3000, 96, 150, 2.0, 0)
    with kernels_set_to(level):
        expected = log_normalizer(weight, bias, hidden)
        for count in (2, 3, 7):
            with num_threads(count):
                assert torch.equal(log_normalizer(weight, bias, hidden), expected)
        parts = [log_normalizer(weight, bias, part) for part in hidden.split([1, 63, 64, 22])]
    assert torch.equal(torch.cat(parts), expected)


@pytest.mark.parametrize("level", ["", "avx2"])
def test_words_that_are_excluded_and_values_that_are_no_numbers(level: str) -> None:
    with kernels_set_to(level):
        check_infinities_and_nan()


def check_infinities_and_nan() -> None:
    weight, bias, hidden = sample(200, 16, 70, 1.0, 0)
    bias[50:] = -torch.inf
    expected, bound = exact(weight[:50], bias[:50], hidden)
    assert bool(((log_normalizer(weight, bias, hidden) - expected).abs() <= bound).all())
    bias[0] = torch.inf
    assert bool((log_normalizer(weight, bias, hidden) >= 1e30).all())
    bias[0], weight[3, 5] = 0.0, torch.nan
    assert bool(log_normalizer(weight, bias, hidden).isnan().all())
    hidden[69, 0], weight[3, 5] = torch.nan, 0.0
    assert log_normalizer(weight, bias, hidden).isnan().tolist() == [False] * 69 + [True]


def test_torch_defaults_of_the_caller_do_not_matter() -> None:
    weight, bias, hidden = sample(300, 8, 70, 1.0, 0)
    expected = log_normalizer(weight, bias, hidden)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(log_normalizer(weight, bias, hidden), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_gradients_are_refused() -> None:
    head = SoftmaxHead(30, 4)
    with pytest.raises(AssertionError):
        find_log_probs(head, torch.ones(2, 4))(torch.ones(2, 4), torch.zeros(2, dtype=torch.long))


def test_no_states_give_no_results() -> None:
    assert log_normalizer(torch.ones(5, 3), torch.ones(5), torch.ones(0, 3)).shape == (0,)


def test_log_probs_of_every_head_and_dtype_equal_the_plain_ones() -> None:
    torch.manual_seed(0)
    head, hidden, targets = SoftmaxHead(700, 24), torch.randn(90, 24), torch.randint(700, (90,))
    fast = find_log_probs(head, hidden)
    with torch.no_grad():
        torch.testing.assert_close(fast(hidden, targets), head.log_probs(hidden, targets), rtol=0, atol=1e-5)
        assert torch.equal(
            find_log_probs(head.double(), hidden.double())(hidden.double(), targets).float(),
            head.log_probs(hidden.double(), targets).float(),
        )
    adaptive = AdaptiveHead(700, 24, (100, 300))
    assert find_log_probs(adaptive, hidden) == adaptive.log_probs
    with kernels_set_to("off"):
        head = head.float()
        with torch.no_grad():
            assert torch.equal(find_log_probs(head, hidden)(hidden, targets), head.log_probs(hidden, targets))
