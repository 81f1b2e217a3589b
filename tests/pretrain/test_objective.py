"""Training losses compared with hand-worked numbers, torch's cross entropy and the NumPy oracle."""

from __future__ import annotations

import math

import numpy as np
import oracle_train
import pytest
import torch
from torch import Tensor

from elmo.model.head import AdaptiveHead, SoftmaxHead
from elmo.pretrain.train import objective
from elmo.pretrain.train.objective import adaptive_softmax_loss, full_softmax_loss, sampled_softmax_loss
from elmo.pretrain.train.sampler import Sample, draw

V, P, N = 37, 6, 23


def case(seed: int = 0) -> tuple[SoftmaxHead, Tensor, Tensor]:
    torch.manual_seed(seed)
    head = SoftmaxHead(V, P)
    torch.nn.init.normal_(head.bias)
    return head, torch.randn(N, P, requires_grad=True), torch.randint(V, (N,))


def gradients(loss: Tensor, head: SoftmaxHead, hidden: Tensor) -> list[Tensor]:
    hidden.grad = head.weight.grad = head.bias.grad = None
    loss.backward()
    grads = [hidden.grad, head.weight.grad, head.bias.grad]
    return [g.to_dense() if g.is_sparse else g for g in grads]  # type: ignore[attr-defined]


def test_sampled_loss_by_hand() -> None:
    """Three words with logits 1, 2, 5; word 0 is true and also sampled; after one draw the counts are the P(k)."""
    head = SoftmaxHead(3, 1)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0], [2.0], [5.0]]))
    sample = Sample(torch.tensor([1, 0]), torch.tensor(1))
    loss = sampled_softmax_loss(head, torch.ones(1, 1), torch.tensor([0]), sample)
    p0, p1 = math.log(2 / 1) / math.log(4), math.log(3 / 2) / math.log(4)
    true, other = math.exp(1) / p0, math.exp(2) / p1  # the accidental hit is excluded
    assert loss.item() == pytest.approx(-math.log(true / (true + other)), abs=1e-6)


def test_loss_is_zero_if_only_the_true_word_is_sampled() -> None:
    head, hidden, _ = case()
    targets = torch.full((N,), 4)
    loss = sampled_softmax_loss(head, hidden, targets, Sample(torch.tensor([4]), torch.tensor(3)))
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert all(bool(g.isfinite().all()) for g in gradients(loss, head, hidden))


def test_sampled_loss_and_gradients_equal_the_oracle() -> None:
    head, hidden, targets = case()
    sample = draw(V, 12, seed=5)
    assert bool((targets[:, None] == sample.ids).any())  # there are accidental hits
    expected = [
        oracle_train.log_uniform_expected(ids.numpy(), int(sample.num_tries), V) for ids in (sample.ids, targets)
    ]
    batch = oracle_train.Batch(
        ids=targets.numpy()[None],
        targets=targets.numpy()[None],
        negatives=oracle_train.Negatives(ids=sample.ids.numpy(), expected=expected[0], true_expected=expected[1][None]),
    )
    weights = {"softmax/W": head.weight.detach().double().numpy(), "softmax/b": head.bias.detach().double().numpy()}
    grads = {name: np.zeros(array.shape) for name, array in weights.items()}
    x = hidden.detach().double().numpy()[None]
    loss, d_x = oracle_train.softmax_loss({}, weights, x, batch, 1.0, grads)
    our_loss = sampled_softmax_loss(head, hidden, targets, sample)
    assert our_loss.item() == pytest.approx(loss, abs=1e-6)
    for ours, theirs in zip(
        gradients(our_loss, head, hidden), (d_x[0], grads["softmax/W"], grads["softmax/b"]), strict=True
    ):
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-6)


def test_sampled_loss_over_all_words_with_equal_counts_equals_the_full_loss() -> None:
    head, hidden, targets = case()
    all_words = Sample(torch.arange(V), torch.tensor(10**9))  # after so many draws every expected count is 1
    sampled = sampled_softmax_loss(head, hidden, targets, all_words)
    full = full_softmax_loss(head, hidden, targets)
    assert sampled.item() == pytest.approx(full.item(), abs=1e-6)
    for a, b in zip(gradients(sampled, head, hidden), gradients(full, head, hidden), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_sparse_gradients_equal_dense_gradients() -> None:
    head, hidden, targets = case()
    sample = draw(V, 12, seed=2)
    dense = gradients(sampled_softmax_loss(head, hidden, targets, sample), head, hidden)
    hidden.grad = head.weight.grad = None
    sampled_softmax_loss(head, hidden, targets, sample, sparse=True).backward()
    assert head.weight.grad is not None
    assert head.weight.grad.is_sparse
    torch.testing.assert_close(head.weight.grad.to_dense(), dense[1])


@pytest.mark.parametrize("rows_per_block", [1, 5, N, 1000])
def test_full_loss_and_gradients_equal_cross_entropy(rows_per_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "MAX_LOGITS", rows_per_block * V)
    head, hidden, targets = case()
    loss = full_softmax_loss(head, hidden, targets)
    expected = torch.nn.functional.cross_entropy(hidden @ head.weight.t() + head.bias, targets)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for a, b in zip(gradients(3 * loss, head, hidden), gradients(3 * expected, head, hidden), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_adaptive_loss_is_the_mean_of_log_probs_over_a_distribution() -> None:
    torch.manual_seed(0)
    head, hidden = AdaptiveHead(V, 16, (5, 20)), torch.randn(4, 16)
    log_probs = torch.stack([head.log_probs(hidden, torch.full((4,), word)) for word in range(V)], dim=1)  # (4, V)
    torch.testing.assert_close(log_probs.exp().sum(dim=1), torch.ones(4))
    targets = torch.tensor([0, 7, 30, 36])
    expected = -log_probs[torch.arange(4), targets].mean()
    assert adaptive_softmax_loss(head, hidden, targets).item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_bfloat16_loss_stays_close_to_float32(kind: str) -> None:
    head, hidden, targets = case()
    sample = draw(V, 12, seed=5)

    def loss(x: Tensor) -> Tensor:
        full = kind == "full"
        return full_softmax_loss(head, x, targets) if full else sampled_softmax_loss(head, x, targets, sample)

    exact, rough = loss(hidden), loss(hidden.bfloat16())
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.01)  # bfloat16 has 8 significant bits
