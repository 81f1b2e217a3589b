"""The compiled softmax of training compared with the plain losses: random shapes, gradients, threads, memory."""

from __future__ import annotations

import ctypes
import gc
import math
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from compiled_kernels import missing_reason, needs_kernels, num_threads
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmo.kernels.api import find_kernel, kernels_set_to
from elmo.kernels.cpu.abi import DTYPES, load
from elmo.kernels.cpu.train_softmax import SoftmaxTask, softmax_losses
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, HeadConfig, LSTMConfig, WordConfig
from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.pretrain.config import ObjectiveConfig, OptimConfig, RunConfig, TrainConfig
from elmo.pretrain.data.stream import Direction, LMBatch
from elmo.pretrain.train.objective import (
    adaptive_softmax_loss,
    full_softmax_loss,
    fused_adaptive_losses,
    fused_softmax_losses,
    sampled_softmax_loss,
)
from elmo.pretrain.train.sampler import Sample, draw, expected_count
from elmo.pretrain.train.step import Trainer

TOLERANCE = 5e-6  # float32 sums in another order, relative to the largest element; logits of about 30 lose 2e-6
EXACT = 2e-5  # compared with float64; the largest error of 20,000 random cases was 6e-6
ROUGH = 0.03  # bfloat16 has 8 significant bits: logits of about 10 are off by up to 0.02


pytestmark = needs_kernels


@dataclass
class Case:
    """Inputs of the losses of R directions; without samples, the softmax is full."""

    head: SoftmaxHead
    hidden: Tensor  # (R, N, P)
    targets: Tensor  # (R, N)
    samples: list[Sample]
    weights: Tensor  # (R,), of the losses in the sum whose gradient is computed


def make_case(
    V: int, P: int, N: int, S: int, *, R: int = 2, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Case:
    """S = 0: the softmax is full."""
    torch.manual_seed(seed)
    head = SoftmaxHead(V, P)
    torch.nn.init.normal_(head.bias)
    hidden = (scale * torch.randn(R, N, P)).to(dtype)
    targets = (V * torch.rand(R, N) ** 2).long()  # low ids, which the sampler draws, are frequent
    samples = [draw(V, S, seed=r) for r in range(R)] if S else []
    return Case(head, hidden, targets, samples, torch.linspace(0.5, -2.0, R))


def plain_losses(case: Case, hidden: Tensor) -> Tensor:
    if not case.samples:
        return torch.stack([full_softmax_loss(case.head, h, t) for h, t in zip(hidden, case.targets, strict=True)])
    parts = zip(hidden, case.targets, case.samples, strict=True)
    return torch.stack([sampled_softmax_loss(case.head, h, t, sample) for h, t, sample in parts])


def fused_losses(case: Case, hidden: Tensor) -> Tensor:
    return fused_softmax_losses(softmax_losses, case.head, hidden, case.targets, case.samples)


def results(case: Case, *, fused: bool) -> list[Tensor]:
    """Losses and the gradients of hidden, weight and bias."""
    case.head.zero_grad(set_to_none=True)
    hidden = case.hidden.clone().requires_grad_()
    losses = fused_losses(case, hidden) if fused else plain_losses(case, hidden)
    (losses * case.weights).sum().backward()
    tensors = [losses.detach(), hidden.grad, case.head.weight.grad, case.head.bias.grad]
    assert all(tensor is not None for tensor in tensors)
    return [tensor.float() for tensor in tensors if tensor is not None]


def exact_results(case: Case) -> list[Tensor]:
    """Losses and gradients in float64.

    Where the true word is almost certain, the plain float32 losses are differences of large logits: of 14,000 random
    cases, one is wrong by 2.8e-4.
    """
    hidden, weight, bias = (
        value.detach().double().requires_grad_() for value in (case.hidden, case.head.weight, case.head.bias)
    )
    losses = []
    for r, targets in enumerate(case.targets):
        if case.samples:
            ids, num_tries = case.samples[r]
            counts, true_counts = (
                expected_count(words, num_tries, len(bias)).log().float() for words in (ids, targets)
            )
            logits = (hidden[r] @ weight[ids].t() + bias[ids] - counts).masked_fill(targets[:, None] == ids, -math.inf)
            true_logits = (hidden[r] * weight[targets]).sum(-1) + bias[targets] - true_counts
            logits, targets = torch.cat([true_logits[:, None], logits], dim=1), torch.zeros_like(targets)
        else:
            logits = hidden[r] @ weight.t() + bias
        losses.append(torch.nn.functional.cross_entropy(logits, targets))
    (torch.stack(losses) * case.weights).sum().backward()
    tensors = [torch.stack(losses).detach(), hidden.grad, weight.grad, bias.grad]
    return [tensor for tensor in tensors if tensor is not None]


def largest_errors(case: Case, expected: list[Tensor]) -> list[float]:
    """Of losses and gradients, relative to the largest element, or to a small part of the terms that may cancel in it.

    The gradient of a state is a mean of rows minus a row, over N; those of weight (times states) and bias are sums
    whose terms add up to at most 1.
    """
    N = case.hidden.shape[1]
    row, state = (float(tensor.detach().abs().max()) for tensor in (case.head.weight, case.hidden))
    floors = [1e-3 / N, 0.05 * row / N, 0.05 * state, 0.05]
    return [
        float((a - b).abs().max() / b.abs().max().clamp(min=floor))
        for a, b, floor in zip(results(case, fused=True), expected, floors, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(
    V=st.integers(2, 700), P=st.integers(1, 140), N=st.integers(1, 330), R=st.integers(1, 2), share=st.floats(0, 1),
    scale=st.sampled_from([0.1, 1.0, 4.0]), seed=st.integers(0, 1000),
)  # fmt: skip
def test_losses_and_gradients_equal_those_in_float64(
    V: int, P: int, N: int, R: int, share: float, scale: float, seed: int
) -> None:
    case = make_case(V, P, N, int(share * (V - 1)), R=R, scale=scale, seed=seed)
    assert max(largest_errors(case, exact_results(case))) < EXACT


def adaptive_case(
    V: int, P: int, N: int, cutoffs: tuple[int, ...], *, R: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[AdaptiveHead, Tensor, Tensor]:
    """A head, states (R, N, P) and true words (R, N), of which many are frequent."""
    torch.manual_seed(seed)
    hidden = torch.randn(R, N, P).to(dtype).requires_grad_()
    return AdaptiveHead(V, P, cutoffs), hidden, (V * torch.rand(R, N) ** 2).long()


def adaptive_results(head: AdaptiveHead, hidden: Tensor, targets: Tensor, *, fused: bool) -> list[Tensor]:
    """Losses and the gradients of hidden and all weights."""
    if fused:
        losses = fused_adaptive_losses(softmax_losses, head, hidden, targets)
    else:
        pairs = zip(hidden, targets, strict=True)
        losses = torch.stack([adaptive_softmax_loss(head, states.float(), words) for states, words in pairs])
    weighted = (losses * torch.linspace(0.5, -2.0, len(losses))).sum()
    return [losses.detach(), *torch.autograd.grad(weighted, [hidden, *head.parameters()])]


@settings(max_examples=60, deadline=None)
@given(
    V=st.integers(3, 700), P=st.integers(4, 140), N=st.integers(1, 330), R=st.integers(1, 2),
    parts=st.lists(st.floats(0, 1), min_size=1, max_size=3), seed=st.integers(0, 1000),
)  # fmt: skip
def test_adaptive_losses_and_gradients_equal_the_plain_ones(
    V: int, P: int, N: int, R: int, parts: list[float], seed: int
) -> None:
    cutoffs = tuple(sorted({1 + int(part * (V - 2)) for part in parts}))
    if len(cutoffs) > 1:
        P = max(P, 4 ** len(cutoffs))  # the width of the last cluster is at least 1
    case = adaptive_case(V, P, N, cutoffs, R=R, seed=seed)
    for result, expected in zip(adaptive_results(*case, fused=True), adaptive_results(*case, fused=False), strict=True):
        assert float((result - expected).abs().max()) < 2e-5 * max(0.05, float(expected.abs().max()))


def test_adaptive_losses_in_bfloat16_are_close_to_those_in_float32() -> None:
    case = adaptive_case(900, 64, 300, (90, 400), dtype=torch.bfloat16)
    for result, expected in zip(adaptive_results(*case, fused=True), adaptive_results(*case, fused=False), strict=True):
        assert float((result - expected).float().abs().max()) < ROUGH * float(expected.float().abs().max())


@pytest.mark.parametrize("fused", [False, True])
def test_clusters_without_a_true_word_have_zero_gradients(fused: bool) -> None:
    head, hidden, _ = adaptive_case(90, 16, 8, (10, 40))
    _, _, *gradients = adaptive_results(head, hidden, torch.full((2, 8), 50), fused=fused)
    by_name = dict(zip([name for name, _ in head.named_parameters()], gradients, strict=True))
    assert not by_name["softmax.tail.0.1.weight"].any()
    assert by_name["softmax.tail.1.1.weight"].any()


@pytest.mark.parametrize(("V", "P", "N", "S"), [(5000, 64, 700, 3000), (3000, 33, 65, 2999), (9000, 128, 130, 0)])
def test_several_groups_of_words_and_blocks_of_states_equal_the_plain_ones(V: int, P: int, N: int, S: int) -> None:
    case = make_case(V, P, N, S)
    assert max(largest_errors(case, results(case, fused=False))) < TOLERANCE


@pytest.mark.parametrize("S", [0, 50])
def test_build_for_avx2_equals_the_plain_losses(S: int) -> None:
    case = make_case(300, 45, 70, S)
    with kernels_set_to("avx2"):
        assert max(largest_errors(case, results(case, fused=False))) < TOLERANCE


@pytest.mark.parametrize("S", [0, 40])
@pytest.mark.parametrize("scale", [20.0, 100.0])
def test_logits_far_above_the_true_one_do_not_overflow(S: int, scale: float) -> None:
    """Losses of hundreds of nats, where exp of the distance from the true logit is above the largest float."""
    case = make_case(90, 12, 70, S, scale=scale)
    expected = results(case, fused=False)
    assert float(expected[0].max()) > 30
    assert max(largest_errors(case, expected)) < TOLERANCE * scale


@pytest.mark.skipif(bool(missing_reason("bfloat16")), reason="this processor has no bfloat16 products")
@pytest.mark.parametrize(
    ("V", "P", "N", "S"), [(700, 64, 300, 200), (301, 33, 65, 99), (500, 7, 1, 0), (2000, 128, 70, 0)]
)
def test_bfloat16_is_as_close_to_float32_as_the_plain_bfloat16(V: int, P: int, N: int, S: int) -> None:
    rough, exact = (make_case(V, P, N, S, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    plain = results(rough, fused=False)
    assert max(largest_errors(rough, plain)) < ROUGH
    exact_results = results(exact, fused=False)
    ours = [float((a - b).norm()) for a, b in zip(results(rough, fused=True), exact_results, strict=True)]
    theirs = [float((a - b).norm()) for a, b in zip(plain, exact_results, strict=True)]
    assert all(a < 1.5 * b + 1e-3 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("V", "P", "N", "S"), [(3000, 65, 700, 2500), (2200, 16, 66, 0)])
def test_results_are_the_same_bits_for_any_number_of_threads(V: int, P: int, N: int, S: int, dtype: str) -> None:
    if reason := missing_reason(dtype):
        pytest.skip(reason)
    case = make_case(V, P, N, S, dtype=getattr(torch, dtype), scale=3.0)
    with num_threads(1):
        expected = results(case, fused=True)
    for count in (1, 2, 3, 7):
        with num_threads(count):
            assert all(torch.equal(a, b) for a, b in zip(results(case, fused=True), expected, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("S", [0, 30])
@pytest.mark.parametrize("place", ["hidden", "weight", "bias"])
def test_value_that_is_not_finite_gives_such_a_loss(bad: float, S: int, place: str) -> None:
    case = make_case(60, 20, 70, S)
    with torch.no_grad():
        if place == "hidden":
            case.hidden[1, 69, 3] = bad
        elif place == "weight":
            case.head.weight[case.samples[1].ids[4] if S else 7, 5] = bad
        elif bad == -math.inf:
            case.head.bias[case.targets[1, 2]] = bad  # a word that is never predicted has a finite loss elsewhere
        else:
            case.head.bias[case.samples[1].ids[4] if S else 7] = bad
    losses, expected = (losses(case, case.hidden).detach().isfinite() for losses in (fused_losses, plain_losses))
    assert losses.tolist() == expected.tolist()
    assert not losses[1]


def test_only_the_true_word_is_scored() -> None:
    case = make_case(9, 5, 3, 1, R=1)
    case.targets.fill_(int(case.samples[0].ids[0]))
    loss, *gradients = results(case, fused=True)
    assert loss.item() == 0.0
    assert all(float(gradient.abs().max()) == 0.0 for gradient in gradients)


def test_memory_does_not_grow_with_the_states() -> None:
    """10,000 states more need their own operands and no logits, which would take 32 KB per state."""
    library = load()
    library.elmo_softmax_bytes.restype = ctypes.c_int64
    sizes = {"vocab_size": 8192, "num_words": 8192, "proj_dim": 64, "num_directions": 2, "dtype": DTYPES["float32"]}
    few, many = (
        library.elmo_softmax_bytes(ctypes.byref(SoftmaxTask(num_states=num_states, **sizes)))
        for num_states in (2560, 12560)
    )
    assert few > 0
    assert few < 16 << 20
    assert many - few < 10_000 * 64 * 8


def test_words_that_the_head_does_not_have_are_refused() -> None:
    case = make_case(20, 4, 6, 5)
    case.targets[1, 5] = 20
    with pytest.raises(IndexError):
        fused_losses(case, case.hidden)
    case.targets[1, 5] = 0
    case.samples[0].ids[2] = -1
    with pytest.raises(IndexError):
        fused_losses(case, case.hidden)


def test_word_that_is_scored_twice_is_refused() -> None:
    case = make_case(20, 4, 6, 5)
    case.samples[1].ids[3] = case.samples[1].ids[2]
    with pytest.raises(IndexError):
        fused_losses(case, case.hidden)


def test_frozen_head_gets_no_gradient() -> None:
    case = make_case(50, 8, 10, 12)
    expected = results(case, fused=True)[1]
    case.head.requires_grad_(False).zero_grad(set_to_none=True)
    hidden = case.hidden.clone().requires_grad_()
    (fused_losses(case, hidden) * case.weights).sum().backward()
    assert hidden.grad is not None
    assert torch.equal(hidden.grad, expected)
    assert case.head.weight.grad is None


def test_memory_of_a_step_is_freed_with_its_losses() -> None:
    """Without the garbage collector, which may run much later: a full softmax has hundreds of megabytes."""
    case = make_case(50, 8, 10, 0)
    hidden = case.hidden.clone().requires_grad_()
    gc.disable()
    try:
        losses = fused_losses(case, hidden)
        assert losses.grad_fn is not None
        gradient = weakref.ref(losses.grad_fn.tensors["d_rows"])  # type: ignore[attr-defined]  # our own attribute
        losses.sum().backward()
        del losses
        assert gradient() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("choice", ["off", "torch"])
def test_kernel_can_be_switched_off(choice: str) -> None:
    assert find_kernel("softmax_losses", "cpu", "float32") is not None
    with kernels_set_to(choice):
        assert find_kernel("softmax_losses", "cpu", "float32") is None


def make_trainer(softmax: str) -> Trainer:
    torch.manual_seed(0)
    adaptive = {"kind": "adaptive", "cutoffs": (9,)} if softmax == "adaptive" else {}
    shape = BiLMConfig(
        chars=None, words=WordConfig(num_words=40, word_dim=8), lstm=LSTMConfig(cell_dim=12, proj_dim=8, num_layers=1),
        head=HeadConfig(vocab_size=40, **adaptive),
    )  # fmt: skip
    config = RunConfig(
        objective=ObjectiveConfig(softmax=softmax, num_samples=15, dropout=0.0),
        optim=OptimConfig(lr=0.01),
        train=TrainConfig(rows=4, steps=5, max_steps=100, precision="float32"),
    )
    return Trainer(BiLM(shape), torch.arange(1, 41, dtype=torch.int32)[:, None], config)


def make_batch(seed: int) -> LMBatch:
    rng = np.random.default_rng(seed)
    draws = [rng.integers(40, size=(4, 5)).astype(np.int32) for _ in range(4)]
    resets = np.zeros((4, 5), bool)
    return LMBatch(Direction(draws[0], draws[1], resets, None), Direction(draws[2], draws[3], resets, None))


@pytest.mark.parametrize("softmax", ["sampled", "full", "adaptive"])
def test_training_steps_equal_the_plain_ones(softmax: str) -> None:
    with kernels_set_to("off"):
        plain = make_trainer(softmax)
    trainer = make_trainer(softmax)
    for step in range(3):
        ours, expected = trainer.step(make_batch(step), step), plain.step(make_batch(step), step)
        assert [ours.forward, ours.backward, ours.grad_norm] == pytest.approx(
            [expected.forward, expected.backward, expected.grad_norm], rel=1e-4
        )
    for a, b in zip(trainer.parameters, plain.parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4)  # AdamW divides small gradients by their own size


def test_training_step_with_a_weight_that_is_not_a_number_is_skipped() -> None:
    trainer = make_trainer("full")
    assert trainer.model.head is not None
    with torch.no_grad():
        trainer.model.head.weight[3, 2] = torch.nan
    assert trainer.step(make_batch(0), 0).skipped
