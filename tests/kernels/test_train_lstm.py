"""LSTM stacks in training through the compiled CPU kernels, compared with plain PyTorch: values and all gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from compiled_kernels import needs_kernels, num_threads
from torch import Tensor

from elmo.kernels.api import find_stacks, kernels_set_to
from elmo.kernels.cpu.abi import has_dtype
from elmo.kernels.cpu.train_lstm import TrainStacks
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, LSTMConfig, WordConfig
from elmo.model.lstm import State
from elmo.model.stacks import run_stacks_plain

# (P, H, L, B, T, directions): sizes that fill vectors, sizes that do not, sizes that coincide, one of everything
SHAPES = [
    (64, 256, 2, 32, 20, 2),
    (13, 37, 3, 5, 7, 2),
    (16, 16 + 1, 1, 16, 16, 2),
    (70, 130, 2, 9, 5, 1),
    (1, 2, 2, 1, 1, 2),
    (64, 65, 2, 64, 3, 2),
]
RELATIVE = 2e-5  # of the largest value: products of float32 in another order


pytestmark = needs_kernels


def random_case(
    shape: tuple[int, int, int, int, int, int], seed: int, *, resets: bool = True, **lstm: object
) -> tuple[BiLM, Tensor, State, Tensor | None, Tensor]:
    """A model with large weights, so that clips are reached, its inputs (R, B, T, P), state, resets and a gradient."""
    P, H, L, B, T, R = shape
    config = BiLMConfig(
        chars=None,
        words=WordConfig(num_words=2, word_dim=P),
        lstm=LSTMConfig(cell_dim=H, proj_dim=P, num_layers=L, **lstm),  # type: ignore[arg-type]
        bidirectional=R == 2,
    )
    generator = torch.Generator().manual_seed(seed)
    model = BiLM(config).train()
    for parameter in model.stacks.parameters():
        scale = 2.0 * len(parameter) ** -0.5 if parameter.dim() > 1 else 0.2
        parameter.data = scale * torch.randn(parameter.shape, generator=generator)
    x = torch.randn(R, B, T, P, generator=generator)
    state = State(torch.randn(R, L, B, P, generator=generator), torch.randn(R, L, B, H, generator=generator))
    fresh = torch.rand(R, B, T, generator=generator) < 0.2 if resets else None
    return model, x, state, fresh, torch.randn(x.shape, generator=generator)


def run(runner: object, model: BiLM, x: Tensor, state: State, fresh: Tensor | None, grad: Tensor) -> list[Tensor]:
    """Outputs, final states and the gradients of x and of every weight."""
    model.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    out, after = runner(model.stacks, x, state, fresh, 0.0)  # type: ignore[operator]
    (out * grad).sum().backward()
    assert x.grad is not None
    return [out.detach(), after.h, after.c, x.grad, *(p.grad for p in model.stacks.parameters() if p.grad is not None)]


def assert_close(ours: list[Tensor], plain: list[Tensor], relative: float) -> None:
    assert len(ours) == len(plain)
    for a, b in zip(ours, plain, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= relative * b.abs().max() + 1e-7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("resets", [True, False])
def test_values_and_gradients_are_those_of_plain_pytorch(
    shape: tuple[int, int, int, int, int, int], resets: bool
) -> None:
    case = random_case(shape, 1, resets=resets)
    assert_close(run(TrainStacks(), *case), run(run_stacks_plain, *case), RELATIVE)


@pytest.mark.parametrize(
    "settings",
    [
        {"cell_clip": None, "proj_clip": None},
        {"cell_clip": 0.3, "proj_clip": 0.2},
        {"skip": False},
    ],
)
def test_clips_and_skips_are_those_of_plain_pytorch(settings: dict[str, object]) -> None:
    case = random_case((24, 50, 3, 7, 6, 2), 2, **settings)
    assert_close(run(TrainStacks(), *case), run(run_stacks_plain, *case), RELATIVE)


def test_avx2_kernels_give_the_values_of_plain_pytorch() -> None:
    case = random_case((70, 130, 2, 9, 5, 2), 11)
    with kernels_set_to("avx2"):
        assert_close(run(TrainStacks(), *case), run(run_stacks_plain, *case), RELATIVE)


def test_dropout_draws_the_random_numbers_of_plain_pytorch() -> None:
    model, x, state, fresh, grad = random_case((24, 40, 3, 7, 6, 2), 3)
    results = []
    for runner in (TrainStacks(), run_stacks_plain):
        torch.manual_seed(5)

        def with_dropout(stacks: object, *inputs: object, runner: object = runner) -> object:
            return runner(stacks, *inputs[:-1], 0.4)  # type: ignore[operator]

        results.append(run(with_dropout, model, x, state, fresh, grad))
    assert_close(results[0], results[1], RELATIVE)
    model.eval()
    case = model, x, state, fresh, grad
    assert_close(run(TrainStacks(), *case), run(run_stacks_plain, *case), RELATIVE)


def test_bfloat16_is_as_close_to_float32_as_plain_bfloat16_is() -> None:
    if not has_dtype("bfloat16"):
        pytest.skip("this processor has no bfloat16 products")
    for shape in SHAPES[:3]:
        case = model, x, state, fresh, grad = random_case(shape, 4)
        half = model, x.bfloat16(), State(state.h.bfloat16(), state.c), fresh, grad
        exact, rounded = run(run_stacks_plain, *case), run(run_stacks_plain, *half)
        ours = run(TrainStacks("bfloat16"), *case)
        assert all(tensor.dtype == torch.float32 for tensor in ours)
        for a, b, c in zip(ours, exact, rounded, strict=True):
            assert 0 < (a - b).norm() <= 1.2 * (c - b).norm()


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    case = random_case((40, 70, 2, 50, 9, 2), 5)
    results = []
    for count in (1, 2, 3, 5):
        with num_threads(count):
            results.append(run(TrainStacks(), *case))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_tape_that_served_another_shape_gives_the_same_bits() -> None:
    runner = TrainStacks()
    run(runner, *random_case((24, 41, 2, 30, 11, 2), 6))
    small = random_case((24, 41, 2, 3, 5, 2), 7)
    assert all(torch.equal(a, b) for a, b in zip(run(runner, *small), run(TrainStacks(), *small), strict=True))


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_tape_is_free_at_once_without_gradients(context: Callable[[], AbstractContextManager[None]]) -> None:
    runner = TrainStacks()
    model, x, state, fresh, _ = random_case((8, 12, 1, 3, 4, 2), 8)
    assert all(parameter.requires_grad for parameter in model.parameters())
    with context():
        for _ in range(2):
            runner(model.stacks, x, state, fresh, 0.0)
            assert len(runner._tapes) == 1


def test_weights_of_another_dtype_are_refused() -> None:
    model = random_case((8, 12, 1, 3, 4, 2), 8)[0]
    assert TrainStacks.supports(model) is None
    model.stacks.bfloat16()
    assert "float32" in (TrainStacks.supports(model) or "")


def test_a_second_backward_pass_is_an_error() -> None:
    model, x, state, fresh, grad = random_case((8, 12, 1, 3, 4, 2), 8)
    out, _ = TrainStacks()(model.stacks, x.requires_grad_(), state, fresh, 0.0)
    out.backward(grad, retain_graph=True)
    with pytest.raises(RuntimeError, match="runs once"):
        out.backward(grad)


@pytest.mark.parametrize(
    "shape", [(16, 41, 2, 3, 5, 2), (24, 40, 2, 3, 5, 2), (24, 41, 1, 3, 5, 2), (24, 41, 2, 3, 5, 1)]
)
def test_stacks_of_other_sizes_are_an_error(shape: tuple[int, int, int, int, int, int]) -> None:
    runner = TrainStacks()
    run(runner, *random_case((24, 41, 2, 3, 5, 2), 12))
    with pytest.raises(ValueError, match="one shape"):
        run(runner, *random_case(shape, 13))


def test_factors_of_another_layout_and_dtype_give_the_same_bits() -> None:
    model, x, state, _, _ = random_case((24, 41, 3, 4, 5, 2), 14)
    R, B, T, P = x.shape
    factors = torch.randint(0, 3, (R, 2, T, B, P), generator=torch.Generator().manual_seed(0)).float()
    inputs = x.transpose(1, 2)
    expected, _ = TrainStacks().layers(model.stacks, inputs, state, None, factors)
    other = factors.double().transpose(-1, -2).contiguous().transpose(-1, -2)
    assert torch.equal(TrainStacks().layers(model.stacks, inputs, state, None, other)[0], expected)


def test_nan_in_a_weight_reaches_outputs_and_gradients() -> None:
    for name in ("kernel", "bias", "projection"):
        model, x, state, fresh, grad = random_case((16, 32, 2, 4, 5, 2), 9)
        getattr(model.stacks[0].layers[0], name).data.flatten()[3] = float("nan")  # type: ignore[union-attr, index]
        results = run(TrainStacks(), model, x, state, fresh, grad)
        assert not torch.isfinite(results[0][0]).all()
        assert any(not torch.isfinite(gradient).all() for gradient in results[4:])


def test_a_model_without_projection_is_not_supported_and_kernels_can_be_off() -> None:
    lstm = LSTMConfig(cell_dim=16, proj_dim=16)
    model = BiLM(BiLMConfig(chars=None, words=WordConfig(num_words=2, word_dim=16), lstm=lstm))
    assert "projection" in (TrainStacks.supports(model) or "")
    assert find_stacks(model, "cpu", "float32") is run_stacks_plain
    supported = random_case((16, 32, 1, 4, 5, 2), 10)[0]
    assert isinstance(find_stacks(supported, "cpu", "float32"), TrainStacks)
    with kernels_set_to("off"):
        assert find_stacks(supported, "cpu", "float32") is run_stacks_plain
