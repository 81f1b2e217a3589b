"""The layer mix against the oracle and against values computed by hand."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import oracle
import pytest
import torch

from elmo.errors import ConfigError
from elmo.model.mix import ScalarMix


def layers_and_mask(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    return torch.randn(3, 2, 4, 6, generator=generator) * mask[None, :, :, None], mask


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_mix_agrees_with_the_oracle(norm: str) -> None:
    layers, mask = layers_and_mask()
    mix = ScalarMix(3, layer_norm=norm)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.1, 0.3, 0.5]))
        mix.gamma.fill_(1.1)
    expected = oracle.mix(
        layers.double().numpy(),
        mask.numpy(),
        np.array([0.1, 0.3, 0.5]),
        1.1,
        layer_norm=None if norm == "none" else norm,
    )
    np.testing.assert_allclose(mix(layers, mask).detach().numpy(), expected, atol=1e-5)


def test_mix_by_hand() -> None:
    mix = ScalarMix(2)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, float(np.log(3.0))]))  # weights 1/4 and 3/4 after the softmax
        mix.gamma.fill_(2.0)
    layers = torch.tensor([1.0, 5.0]).view(2, 1, 1, 1)
    assert mix(layers).item() == pytest.approx(2 * (0.25 * 1 + 0.75 * 5))
    torch.testing.assert_close(mix.layer_weights(), torch.tensor([0.25, 0.75]))


def test_token_norm_does_not_depend_on_other_tokens() -> None:
    layers, mask = layers_and_mask()
    mix = ScalarMix(3, layer_norm="token")
    alone = mix(layers[:, :1, :2], mask[:1, :2])
    torch.testing.assert_close(mix(layers, mask)[:1, :2], alone)
    batch = ScalarMix(3, layer_norm="batch")
    assert not torch.allclose(batch(layers, mask)[:1, :2], batch(layers[:, :1, :2], mask[:1, :2]))


def test_top_only_uses_the_last_layer_and_trains_gamma() -> None:
    layers, mask = layers_and_mask()
    mix = ScalarMix(3, top_only=True)
    assert torch.equal(mix(layers, mask), layers[-1])
    assert [name for name, p in mix.named_parameters()] == ["gamma"]
    assert mix.layer_weights().tolist() == [0, 0, 1]


def test_fixed_weights_are_not_trained() -> None:
    mix = ScalarMix(3, fixed=[1.0, -9e10, 1.0])
    layers, mask = layers_and_mask()
    out = mix(layers, mask)
    torch.testing.assert_close(out, (layers[0] + layers[2]) / 2)
    out.sum().backward()
    assert mix.weights.grad is None
    assert mix.gamma.grad is not None


def test_penalty_pulls_towards_the_average() -> None:
    mix = ScalarMix(3, penalty=0.5)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([1.0, 2.0, 0.0]))
    assert mix.penalty().item() == pytest.approx(0.5 * 5)
    assert ScalarMix(3).penalty().item() == 0.0


@pytest.mark.parametrize("norm", ["none", "batch", "token"])
@pytest.mark.parametrize("weights", [[1e4, 0.0, -1e4], [-9e10, -9e10, 1.0]])
def test_extreme_weights_and_empty_masks_stay_finite(norm: str, weights: list[float]) -> None:
    layers, mask = layers_and_mask()
    mix = ScalarMix(3, layer_norm=norm, fixed=weights, dropout=1.0).train()
    assert torch.isfinite(mix(layers, torch.zeros_like(mask))).all()
    assert torch.isfinite(mix.eval()(torch.zeros_like(layers), torch.zeros_like(mask))).all()


def test_several_mixes_start_equal_and_differ_after_training() -> None:
    layers, mask = layers_and_mask()
    first, second = ScalarMix(3), ScalarMix(3)
    assert torch.equal(first(layers, mask), second(layers, mask))
    first(layers, mask).sum().backward()
    torch.optim.SGD(first.parameters(), lr=0.1).step()
    assert not torch.equal(first(layers, mask), second(layers, mask))


def test_copies_keep_their_weights() -> None:
    mix = ScalarMix(3, layer_norm="token", penalty=0.1)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.1, 0.2, 0.3]))
    layers, mask = layers_and_mask()
    reloaded = ScalarMix(3, layer_norm="token", penalty=0.1)
    reloaded.load_state_dict(mix.state_dict())
    for other in (copy.deepcopy(mix), pickle.loads(pickle.dumps(mix)), reloaded):
        assert torch.equal(other(layers, mask), mix(layers, mask))


def test_dropout_acts_in_training_only() -> None:
    layers, mask = layers_and_mask()
    mix = ScalarMix(3, dropout=0.5)
    assert torch.equal(mix.eval()(layers, mask), mix(layers, mask))
    torch.manual_seed(0)
    assert (mix.train()(layers, mask)[0] == 0).float().mean() > 0.2


@pytest.mark.parametrize("norm", ["none", "batch", "token"])
def test_float16_layers_of_many_tokens_are_normalized(norm: str) -> None:
    """From 65,504 features on, the count of the batch norm was infinite in float16, and all vectors were nan."""
    layers = torch.randn(3, 2, 50, 1024, generator=torch.Generator().manual_seed(0))
    mix = ScalarMix(3, layer_norm=norm)
    mixed = mix(layers.half())
    assert mixed.dtype == torch.float16
    torch.testing.assert_close(mixed.float(), mix(layers), rtol=0, atol=5e-3)  # float16 has 11 bits


@pytest.mark.parametrize("norm", ["none", "batch", "token"])
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_layers_is_mixed_as_one_tensor(kind: type, norm: str) -> None:
    layers, mask = layers_and_mask()
    mix = ScalarMix(3, layer_norm=norm)
    torch.testing.assert_close(mix(kind(layers), mask), mix(layers, mask), rtol=0, atol=0)


def test_layers_that_are_no_tensors_of_equal_shape_are_refused() -> None:
    array = np.zeros((3, 2, 4, 6), dtype=np.float32)
    for layers in (array, list(array), "abc", None):
        with pytest.raises(TypeError, match=r'The mix got a \w+; expected a tensor .* output="torch"'):
            ScalarMix(3)(layers)
    with pytest.raises(ConfigError, match=r"shapes \(2, 4, 6\), \(2, 3, 6\); expected layers of equal shape"):
        ScalarMix(2)([torch.zeros(2, 4, 6), torch.zeros(2, 3, 6)])
    with pytest.raises(ConfigError, match="3 layers and got 0"):
        ScalarMix(3)([])


@pytest.mark.parametrize(
    "fixed", [[float("nan"), 0.0, 1.0], [float("inf"), 0.0, 1.0], [float("-inf")] * 3, [float("inf")] * 3]
)
def test_fixed_weights_without_a_softmax_are_refused(fixed: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"fixed is .*; expected"):
        ScalarMix(3, fixed=fixed)


def test_fixed_weight_of_minus_infinity_leaves_the_layer_out() -> None:
    mix = ScalarMix(3, fixed=[0.0, float("-inf"), 0.0])
    assert mix.layer_weights().tolist() == [0.5, 0.0, 0.5]


def test_fixed_weights_beside_top_only_are_refused() -> None:
    with pytest.raises(ConfigError, match="top_only"):
        ScalarMix(3, top_only=True, fixed=[0.0, 0.0, 1.0])


def test_infinite_or_missing_penalty_is_refused() -> None:
    for penalty in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ConfigError, match="penalty"):
            ScalarMix(3, penalty=penalty)


def test_wrong_counts_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 layers and got 2"):
        ScalarMix(3)([torch.zeros(1, 1, 4)] * 2)
    with pytest.raises(ConfigError, match="3 layers and got 2"):
        ScalarMix(3)(torch.zeros(2, 1, 1, 4))
    with pytest.raises(ConfigError, match="2 fixed weights"):
        ScalarMix(3, fixed=[0.0, 1.0])
    with pytest.raises(ConfigError, match="layer_norm"):
        ScalarMix(3, layer_norm="layer")
