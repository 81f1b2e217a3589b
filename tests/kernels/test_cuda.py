"""The Triton kernels for training against plain PyTorch on random inputs: values, gradients, resets, clips, odd sizes.

The kernels run on CUDA or in Triton's interpreter: see triton_here.
Shapes: R directions, L layers, T steps, B rows, P projection, H cells.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from triton_here import CUDA, DEVICE, MARKS

from elmo.kernels.cuda.char_cnn import strongest_windows
from elmo.kernels.cuda.lstm import bilstm
from elmo.kernels.cuda.softmax import sampled_cross_entropy
from elmo.kernels.cuda.wavefront import view_by_step
from elmo.model.config import CharConfig, LSTMConfig
from elmo.model.head import SoftmaxHead
from elmo.model.lstm import LSTMStack, State
from elmo.model.stacks import run_stacks_fused, run_stacks_plain
from elmo.model.token_encoder import CharCNN, _with_padding_row
from elmo.pretrain.train.objective import sampled_softmax_loss
from elmo.pretrain.train.sampler import Sample, draw
from elmo.text.chars import encode_token

pytestmark = MARKS

LARGE_SIZES = [(130, 9, 2100, 300), (7, 20, 1024, 128), (200, 6, 2048, 256)] if CUDA else []
DTYPES = [torch.float32, torch.bfloat16] if CUDA else [torch.float32]


@pytest.fixture(autouse=True)
def _fill_empty_memory_with_nan() -> Iterator[None]:
    """In deterministic mode torch fills empty tensors with NaN, so reads of unwritten memory become visible."""
    torch.use_deterministic_algorithms(not CUDA)
    yield
    torch.use_deterministic_algorithms(False)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).norm() / expected.norm().clamp(min=1e-30))


@pytest.mark.parametrize("sizes", [(1, 1, 16, 8), (3, 5, 48, 24), (7, 6, 70, 20), *LARGE_SIZES])
@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    ("clip", "skip", "L", "R"), [(0.25, True, 2, 2), (None, False, 1, 2), (3.0, True, 3, 2), (None, True, 4, 1)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_stacks_equal_plain_stacks(sizes, resets, clip, skip, L, R, dtype) -> None:
    B, T, H, P = sizes
    if dtype == torch.bfloat16 and clip == 0.25 and sizes not in LARGE_SIZES:
        pytest.skip("with so few values, one value that rounding moves across its clip is a third of the gradient")
    config = LSTMConfig(num_layers=L, cell_dim=H, proj_dim=P, cell_clip=clip, proj_clip=clip, skip=skip)
    stacks = nn.ModuleList(LSTMStack(config) for _ in range(R)).to(DEVICE)
    for parameter in stacks.parameters():  # larger than at the start of training, so that the clips take effect
        nn.init.normal_(parameter, std=2.0 * parameter.shape[0] ** -0.5)
    x = torch.randn(R, B, T, P, device=DEVICE)
    state = State(torch.randn(R, L, B, P, device=DEVICE) * 0.3, torch.randn(R, L, B, H, device=DEVICE) * 0.3)
    fresh = torch.rand(R, B, T, device=DEVICE) < 0.3 if resets else None
    weight = torch.randn(R, B, T, P, device=DEVICE)

    def run(run_stacks: Callable[..., Any]) -> list[Tensor]:
        stacks_copy = copy.deepcopy(stacks)
        inputs = x.detach().to(dtype).requires_grad_()
        out, after = run_stacks(stacks_copy, inputs, State(state.h.to(dtype), state.c), fresh, 0.0)
        (out.float() * weight).sum().backward()
        assert inputs.grad is not None
        return [out, after.h, after.c, inputs.grad, *(p.grad for p in stacks_copy.parameters() if p.grad is not None)]

    torch.backends.cuda.matmul.allow_tf32 = False
    # The two round at different places. Next to a clip, this switches single gradients off or on; with a clip of 0.25
    # that happens often.
    tolerance = {torch.float32: 2e-4 if CUDA and clip else 2e-5, torch.bfloat16: 0.08}[dtype]
    clipped_tolerances = {torch.float32: (1e-3, 0.05) if CUDA else (2e-5, 2e-5), torch.bfloat16: (0.25, 0.25)}[dtype]
    for number, (fused, plain) in enumerate(
        zip(run(partial(run_stacks_fused, bilstm)), run(run_stacks_plain), strict=True)
    ):
        assert torch.isfinite(fused).all()
        # numbers 0 to 2 are values, the others gradients
        allowed = clipped_tolerances[number > 2] if clip == 0.25 else tolerance
        assert relative_error(fused, plain) < allowed, (number, relative_error(fused, plain))


@pytest.mark.parametrize("skip", [False, True])
def test_dropout_masks_the_same_inputs_as_in_plain_stacks(skip, monkeypatch) -> None:
    B, T, H, P, L, dropout = 3, 5, 48, 24, 3, 0.4
    torch.backends.cuda.matmul.allow_tf32 = False
    stacks = nn.ModuleList(LSTMStack(LSTMConfig(num_layers=L, cell_dim=H, proj_dim=P, skip=skip)) for _ in range(2))
    x, weight = (torch.randn(2, B, T, P, device=DEVICE) for _ in range(2))
    state = State(torch.zeros(2, L, B, P, device=DEVICE), torch.zeros(2, L, B, H, device=DEVICE))
    keep_masks = (torch.rand(L, 2, B, T, P, device=DEVICE) >= dropout).float()

    def run(run_stacks: Callable[..., Any], masks: list[Tensor]) -> list[Tensor]:
        def drop(x: Tensor, p: float, training: bool = True) -> Tensor:
            assert (p, training) == (dropout, True)
            return x * masks.pop(0) / (1 - dropout)

        def fill(buffer: Tensor, p: float) -> None:
            assert p == 1 - dropout
            view_by_step(buffer, 2, T)[:] = keep_masks[1:].transpose(2, 3)

        monkeypatch.setattr(nn.functional, "dropout", drop)
        monkeypatch.setattr(Tensor, "bernoulli_", fill)
        stacks_copy, inputs = copy.deepcopy(stacks).to(DEVICE).train(), x.clone().requires_grad_()
        out, _ = run_stacks(stacks_copy, inputs, state, None, dropout)
        (out * weight).sum().backward()
        assert not masks
        assert inputs.grad is not None
        return [out, inputs.grad, *(p.grad for p in stacks_copy.parameters() if p.grad is not None)]

    fused = run(partial(run_stacks_fused, bilstm), [keep_masks[0]])
    plain = run(run_stacks_plain, [keep_masks[layer, direction] for direction in range(2) for layer in range(L)])
    for actual, expected in zip(fused, plain, strict=True):
        assert relative_error(actual, expected) < 2e-5


def test_second_backward_is_refused() -> None:
    """The first backward pass overwrites gates and outputs with their gradients."""
    stacks = nn.ModuleList(LSTMStack(LSTMConfig(num_layers=1, cell_dim=16, proj_dim=8)) for _ in range(2)).to(DEVICE)
    state = State(torch.zeros(2, 1, 2, 8, device=DEVICE), torch.zeros(2, 1, 2, 16, device=DEVICE))
    out, _ = run_stacks_fused(bilstm, stacks, torch.randn(2, 2, 3, 8, device=DEVICE), state, None, 0.0)
    out.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward once"):
        out.sum().backward()


@pytest.mark.parametrize("resets", [False, True])
def test_outputs_are_the_same_without_gradients(resets) -> None:
    config = LSTMConfig(num_layers=2, cell_dim=48, proj_dim=24, cell_clip=0.5, proj_clip=0.5)
    stacks = nn.ModuleList(LSTMStack(config) for _ in range(2)).to(DEVICE)
    x = torch.randn(2, 5, 7, 24, device=DEVICE)
    state = State(torch.randn(2, 2, 5, 24, device=DEVICE) * 0.3, torch.randn(2, 2, 5, 48, device=DEVICE) * 0.3)
    fresh = torch.rand(2, 5, 7, device=DEVICE) < 0.3 if resets else None
    expected, expected_state = run_stacks_fused(bilstm, stacks, x, state, fresh, 0.0)
    with torch.no_grad():
        actual, actual_state = run_stacks_fused(bilstm, stacks, x, state, fresh, 0.0)
    assert expected.requires_grad
    assert not actual.requires_grad
    pairs = (actual, expected), (actual_state.h, expected_state.h), (actual_state.c, expected_state.c)
    for without_grad, with_grad in pairs:
        assert relative_error(without_grad, with_grad) < 1e-6  # other output strides may change the rounding


@pytest.mark.parametrize("clip", [0.1, 0.7, 0.9, 3.0])
def test_clipped_outputs_get_no_gradient_though_the_clip_is_rounded(clip) -> None:
    """0.7 is 0.699 in bfloat16: an output with that value was clipped."""
    R, T, B, P, H = 1, 1, 6, 8, 16
    shapes = (R, T, B, P), (R, 2 * P, 4 * H), (R, 4 * H), (R, H, P)
    x, kernel, bias, projection = (torch.randn(shape, device=DEVICE).bfloat16() for shape in shapes)
    state = torch.zeros(1, R, B, P, device=DEVICE).bfloat16(), torch.zeros(1, R, B, H, device=DEVICE)
    x.requires_grad_()
    out, _, _ = bilstm(
        x, kernel, bias, projection * 1000, *state, None, cell_clip=None, proj_clip=clip, forget_bias=1.0, skip=False
    )
    out.sum().backward()
    clipped = (out.abs() >= 0.99 * clip).all(dim=-1)  # (R, T, B)
    assert clipped.any()
    assert x.grad is not None
    assert not x.grad[clipped].any()


def test_initial_state_gets_no_gradient() -> None:
    R, T, B, P, H = 1, 3, 6, 8, 16
    shapes = (R, T, B, P), (R, 2 * P, 4 * H), (R, 4 * H), (R, H, P)
    inputs_and_weights = [torch.randn(shape, device=DEVICE) for shape in shapes]
    h, c = (torch.zeros(1, R, B, size, device=DEVICE, requires_grad=True) for size in (P, H))
    out, _, _ = bilstm(*inputs_and_weights, h, c, None, cell_clip=3.0, proj_clip=3.0, forget_bias=1.0, skip=False)
    assert not out.requires_grad


@pytest.mark.parametrize("filters", [((1, 32), (3, 64), (7, 100)), ((2, 5), (4, 30))])
def test_strongest_windows_equal_convolutions(filters) -> None:
    encoder = CharCNN(CharConfig(filters=filters, num_highways=0)).to(DEVICE)
    words = ["a", "the", "Unfathomable", "x" * 60, "漢字", "", "-", "mid-length-word"]
    ids = torch.from_numpy(np.stack([encode_token(word) for word in words])).to(DEVICE)
    weight = torch.randn(len(words), sum(count for _, count in filters), device=DEVICE)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    table = _with_padding_row(encoder.table)
    weights, biases = zip(*((c.weight, c.bias) for c in encoder.convolutions), strict=True)
    x = nn.functional.embedding(ids, table).transpose(1, 2)
    expected = torch.cat([convolution(x).amax(dim=-1) for convolution in encoder.convolutions], dim=-1)
    actual = strongest_windows(ids, table, list(weights), list(biases), torch.float32)
    assert relative_error(actual, expected) < 1e-5
    gradients = [
        torch.autograd.grad((y * weight).sum(), encoder.parameters(), retain_graph=True) for y in (actual, expected)
    ]
    for fused, plain in zip(*gradients, strict=True):
        # where the maxima of two windows are nearly equal, rounding decides which of them gets the gradient
        assert relative_error(fused, plain) < 1e-2, relative_error(fused, plain)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sampled_cross_entropy_equals_the_plain_one(dtype) -> None:
    initial_head = SoftmaxHead(500, 24).to(DEVICE)
    nn.init.normal_(initial_head.bias)
    hidden = torch.randn(70, 24, device=DEVICE).to(dtype)
    targets = torch.randint(0, 500, (70,), device=DEVICE) // 7  # frequent words, so that accidental hits occur
    sample = Sample(*(value.to(DEVICE) for value in draw(500, 100, 3)))
    assert bool((targets[:, None] == sample.ids).any())

    def run(kernel: Callable[..., Tensor] | None) -> list[Tensor]:
        head, x = copy.deepcopy(initial_head), hidden.detach().requires_grad_()
        loss = sampled_softmax_loss(head, x, targets, sample, fused=kernel)
        loss.backward()
        return [loss, x.grad, head.weight.grad, head.bias.grad]  # type: ignore[list-item]  # backward filled them

    for fused, plain in zip(run(sampled_cross_entropy), run(None), strict=True):
        assert relative_error(fused, plain) < (1e-5 if dtype == torch.float32 else 3e-2)
