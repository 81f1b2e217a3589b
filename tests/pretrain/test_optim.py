"""Learning rate schedules, exact gradient clipping, and the optimizers' settings."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from elmo.errors import ConfigError
from elmo.pretrain.config import RECIPES, OptimConfig
from elmo.pretrain.train.optim import clip_gradients, learning_rate, load_optimizer, make_optimizer, set_learning_rate


def test_rates_of_a_cosine_run_by_hand() -> None:
    """100 steps: a tenth of them is warm-up to 1, then the rate falls to 0.1 along half a cosine."""
    config = OptimConfig(lr=1.0, warmup=0.1, decay="cosine", final=0.1)
    assert learning_rate(config, 0, 100) == pytest.approx(0.1)
    assert learning_rate(config, 4, 100) == pytest.approx(0.5)
    assert learning_rate(config, 9, 100) == pytest.approx(1.0)
    assert learning_rate(config, 10, 100) == pytest.approx(1.0)
    assert learning_rate(config, 55, 100) == pytest.approx(0.55)  # halfway: the mean of 1 and 0.1
    assert learning_rate(config, 40, 100) == pytest.approx(0.1 + 0.9 * 0.75)  # a third: cos(60 degrees) = 1/2
    assert learning_rate(config, 100, 100) == pytest.approx(0.1)
    assert learning_rate(config, 5000, 100) == pytest.approx(0.1)


def test_rates_of_a_linear_and_of_a_constant_run() -> None:
    linear = OptimConfig(lr=2.0, warmup=0.0, decay="linear", final=0.0)
    assert [learning_rate(linear, step, 4) for step in range(5)] == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0])
    constant = OptimConfig(**RECIPES["paper"]["optim"])
    assert {learning_rate(constant, step, 10) for step in range(20)} == {0.2}


def test_run_of_one_step_has_the_full_rate() -> None:
    assert learning_rate(OptimConfig(lr=1.0), 0, 1) == 1.0


@pytest.mark.parametrize("norm", [0.5, 5.0, 10.0, 20.0, 1e6])
def test_clip_is_exactly_clip_over_the_larger_of_norm_and_clip(norm: float) -> None:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.zeros(3, 4)), nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(2))]
    raw = [torch.randn(3, 4), torch.randn(5)]  # the third has no gradient
    scale = norm / math.sqrt(sum(float((g.double() ** 2).sum()) for g in raw))
    for parameter, gradient in zip(parameters, raw, strict=False):
        parameter.grad = gradient * scale
    before = [p.grad.clone() for p in parameters[:2]]
    norm_before = clip_gradients(parameters, 10.0)
    assert float(norm_before) == pytest.approx(norm, rel=1e-6)
    for parameter, old in zip(parameters, before, strict=False):
        torch.testing.assert_close(parameter.grad, old * (10.0 / max(norm, 10.0)), rtol=1e-6, atol=0)
        assert norm > 10.0 or torch.equal(parameter.grad, old)  # unchanged, bit for bit


def test_clip_counts_a_sparse_row_once() -> None:
    """Row 1 is in the gradient twice, with 3 and 1, which add up to 4; with the dense 3 the norm is 5."""
    table, other = nn.Parameter(torch.zeros(4, 1)), nn.Parameter(torch.zeros(1))
    table.grad = torch.sparse_coo_tensor(
        torch.tensor([[1, 1]]), torch.tensor([[3.0], [1.0]]), (4, 1), check_invariants=True
    )
    other.grad = torch.tensor([3.0])
    assert float(clip_gradients([table, other], 1.0)) == pytest.approx(5.0)
    assert table.grad.to_dense()[:, 0].tolist() == pytest.approx([0, 0.8, 0, 0])
    assert other.grad.tolist() == pytest.approx([0.6])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_clip_returns_a_non_finite_norm_for_a_non_finite_gradient(bad: float) -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([1.0, bad, 0.0])
    assert not math.isfinite(float(clip_gradients([parameter], 1.0)))


def test_adagrad_starts_at_one_and_has_no_epsilon() -> None:
    layer = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    optimizer = make_optimizer(layer, OptimConfig(**RECIPES["paper"]["optim"]))
    x, total = 1.0, 1.0
    for g in (2.0, -0.5, 3.0):
        layer.weight.grad = torch.tensor([[g]])
        optimizer.step()
        total += g * g
        x -= 0.2 * g / math.sqrt(total)
        assert layer.weight.item() == pytest.approx(x, abs=1e-6)


def test_adamw_decays_only_matrices() -> None:
    layer = nn.Linear(2, 2)
    optimizer = make_optimizer(layer, OptimConfig(lr=0.1, weight_decay=0.5))
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    layer.weight.grad, layer.bias.grad = torch.zeros(2, 2), torch.zeros(2)
    set_learning_rate(optimizer, 0.2)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), weight * (1 - 0.2 * 0.5))
    assert torch.equal(layer.bias.detach(), bias)


def test_adamw_equals_its_formula_in_float64() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(70, 30, bias=False)
    config = OptimConfig(lr=0.01, weight_decay=0.1, beta1=0.9, beta2=0.98)
    optimizer = make_optimizer(layer, config)
    weight, mean, square = layer.weight.detach().double(), torch.zeros(30, 70).double(), torch.zeros(30, 70).double()
    for step in range(1, 6):
        gradient = torch.randn(30, 70)
        layer.weight.grad = gradient.clone()
        optimizer.step()
        mean = 0.9 * mean + 0.1 * gradient.double()
        square = 0.98 * square + 0.02 * gradient.double() ** 2
        corrected = (square / (1 - 0.98**step)).sqrt() + 1e-8
        weight = weight * (1 - 0.01 * 0.1) - 0.01 * mean / (1 - 0.9**step) / corrected
        torch.testing.assert_close(layer.weight.detach().double(), weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "sgd"},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"decay": "step"},
        {"clip_norm": 0},
        {"warmup": 1.0},
        {"final": 2},
    ],
)
def test_wrong_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        OptimConfig(**wrong)


def test_loaded_optimizer_keeps_its_own_kernels() -> None:
    model = nn.Linear(3, 2)
    plain, fused = (torch.optim.AdamW(model.parameters(), lr=0.1, fused=is_fused) for is_fused in (False, True))
    model(torch.ones(1, 3)).sum().backward()
    plain.step()
    load_optimizer(fused, plain.state_dict())
    assert fused.param_groups[0]["fused"] is True
    fused.found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]  # only fused kernels support it
    before = model.weight.detach().clone()
    fused.step()
    assert torch.equal(model.weight, before)
