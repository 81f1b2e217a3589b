"""The Triton twins against the plain code on fresh random inputs: values, gradients, forgetting, clips, odd sizes.

On CUDA, or in Triton's interpreter: see triton_here.
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
from elmo.kernels.cuda.wavefront import by_step
from elmo.model.config import CharConfig, LSTMConfig
from elmo.model.head import SoftmaxHead
from elmo.model.lstm import LSTMStack, State
from elmo.model.stacks import run_stacks_fused, run_stacks_plain
from elmo.model.token_encoder import CharCNN, _with_padding_row
from elmo.pretrain.train.objective import sampled_softmax_loss
from elmo.pretrain.train.sampler import Sample, draw
from elmo.text.chars import encode_token

pytestmark = MARKS

LARGE = [(130, 9, 2100, 300), (7, 20, 1024, 128), (200, 6, 2048, 256)] if CUDA else []
DTYPES = [torch.float32, torch.bfloat16] if CUDA else [torch.float32]


@pytest.fixture(autouse=True)
def _empty_is_not_a_number() -> Iterator[None]:
    """Memory that nobody wrote to shows, where torch can fill it."""
    torch.use_deterministic_algorithms(not CUDA)
    yield
    torch.use_deterministic_algorithms(False)


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.detach().double() - b.detach().double()).norm() / b.detach().double().norm().clamp(min=1e-30))


@pytest.mark.parametrize("sizes", [(1, 1, 16, 8), (3, 5, 48, 24), (7, 6, 70, 20), *LARGE])
@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    ("clip", "skip", "layers", "D"), [(0.25, True, 2, 2), (None, False, 1, 2), (3.0, True, 3, 2), (None, True, 4, 1)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_rows_equal_the_plain_ones(sizes, resets, clip, skip, layers, D, dtype) -> None:
    B, T, H, P = sizes
    if dtype == torch.bfloat16 and clip == 0.25 and sizes not in LARGE:
        pytest.skip("of few numbers, one that rounding puts on the other side of its clip is a third of the gradient")
    config = LSTMConfig(num_layers=layers, cell_dim=H, proj_dim=P, cell_clip=clip, proj_clip=clip, skip=skip)
    stacks = nn.ModuleList(LSTMStack(config) for _ in range(D)).to(DEVICE)
    for parameter in stacks.parameters():  # larger than at the start of training, so that clips bind
        nn.init.normal_(parameter, std=2.0 * parameter.shape[0] ** -0.5)
    x = torch.randn(D, B, T, P, device=DEVICE)
    state = State(torch.randn(D, layers, B, P, device=DEVICE) * 0.3, torch.randn(D, layers, B, H, device=DEVICE) * 0.3)
    fresh = torch.rand(D, B, T, device=DEVICE) < 0.3 if resets else None
    weight = torch.randn(D, B, T, P, device=DEVICE)

    def run(function: Callable[..., Any]) -> list[Tensor]:
        mine = copy.deepcopy(stacks)
        given = x.detach().to(dtype).requires_grad_()
        out, after = function(mine, given, State(state.h.to(dtype), state.c), fresh, 0.0)
        (out.float() * weight).sum().backward()
        assert given.grad is not None
        return [out, after.h, after.c, given.grad, *(p.grad for p in mine.parameters() if p.grad is not None)]

    torch.backends.cuda.matmul.allow_tf32 = False
    # the two round at other places; beside a clip, this switches single gradients off or on: often where it binds often
    limit = {torch.float32: 2e-4 if CUDA and clip else 2e-5, torch.bfloat16: 0.08}[dtype]
    switching = {torch.float32: (1e-3, 0.05) if CUDA else (2e-5, 2e-5), torch.bfloat16: (0.25, 0.25)}[dtype]
    for number, (mine, truth) in enumerate(
        zip(run(partial(run_stacks_fused, bilstm)), run(run_stacks_plain), strict=True)
    ):
        assert torch.isfinite(mine).all()
        allowed = switching[number > 2] if clip == 0.25 else limit  # numbers 0 to 2 are values
        assert relative(mine, truth) < allowed, (number, relative(mine, truth))


@pytest.mark.parametrize("skip", [False, True])
def test_what_dropout_leaves_is_what_the_plain_stacks_read(skip, monkeypatch) -> None:
    B, T, H, P, L, share = 3, 5, 48, 24, 3, 0.4
    torch.backends.cuda.matmul.allow_tf32 = False
    stacks = nn.ModuleList(LSTMStack(LSTMConfig(num_layers=L, cell_dim=H, proj_dim=P, skip=skip)) for _ in range(2))
    x, weight = (torch.randn(2, B, T, P, device=DEVICE) for _ in range(2))
    state = State(torch.zeros(2, L, B, P, device=DEVICE), torch.zeros(2, L, B, H, device=DEVICE))
    left = (torch.rand(L, 2, B, T, P, device=DEVICE) >= share).float()

    def run(function: Callable[..., Any], masks: list[Tensor]) -> list[Tensor]:
        def drop(x: Tensor, p: float, training: bool = True) -> Tensor:
            assert (p, training) == (share, True)
            return x * masks.pop(0) / (1 - share)

        def fill(buffer: Tensor, p: float) -> None:
            assert p == 1 - share
            by_step(buffer, 2, T)[:] = left[1:].transpose(2, 3)

        monkeypatch.setattr(nn.functional, "dropout", drop)
        monkeypatch.setattr(Tensor, "bernoulli_", fill)
        mine, given = copy.deepcopy(stacks).to(DEVICE).train(), x.clone().requires_grad_()
        out, _ = function(mine, given, state, None, share)
        (out * weight).sum().backward()
        assert not masks
        assert given.grad is not None
        return [out, given.grad, *(p.grad for p in mine.parameters() if p.grad is not None)]

    fused = run(partial(run_stacks_fused, bilstm), [left[0]])
    plain = run(run_stacks_plain, [left[layer, d] for d in range(2) for layer in range(L)])
    for mine, truth in zip(fused, plain, strict=True):
        assert relative(mine, truth) < 2e-5


def test_a_second_backward_is_refused() -> None:
    """Gates and outputs were overwritten by their gradients."""
    stacks = nn.ModuleList(LSTMStack(LSTMConfig(num_layers=1, cell_dim=16, proj_dim=8)) for _ in range(2)).to(DEVICE)
    state = State(torch.zeros(2, 1, 2, 8, device=DEVICE), torch.zeros(2, 1, 2, 16, device=DEVICE))
    out, _ = run_stacks_fused(bilstm, stacks, torch.randn(2, 2, 3, 8, device=DEVICE), state, None, 0.0)
    out.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward once"):
        out.sum().backward()


@pytest.mark.parametrize("resets", [False, True])
def test_without_a_gradient_the_numbers_are_the_same(resets) -> None:
    config = LSTMConfig(num_layers=2, cell_dim=48, proj_dim=24, cell_clip=0.5, proj_clip=0.5)
    stacks = nn.ModuleList(LSTMStack(config) for _ in range(2)).to(DEVICE)
    x = torch.randn(2, 5, 7, 24, device=DEVICE)
    state = State(torch.randn(2, 2, 5, 24, device=DEVICE) * 0.3, torch.randn(2, 2, 5, 48, device=DEVICE) * 0.3)
    fresh = torch.rand(2, 5, 7, device=DEVICE) < 0.3 if resets else None
    kept, after = run_stacks_fused(bilstm, stacks, x, state, fresh, 0.0)
    with torch.no_grad():
        found, found_after = run_stacks_fused(bilstm, stacks, x, state, fresh, 0.0)
    assert kept.requires_grad
    assert not found.requires_grad
    for mine, truth in ((found, kept), (found_after.h, after.h), (found_after.c, after.c)):
        assert relative(mine, truth) < 1e-6  # a product into other strides may round otherwise


@pytest.mark.parametrize("clip", [0.1, 0.7, 0.9, 3.0])
def test_clipped_outputs_get_no_gradient_though_the_clip_is_rounded(clip) -> None:
    """0.7 is 0.699 in bfloat16: what was clipped to that was clipped."""
    D, T, B, P, H = 1, 1, 6, 8, 16
    shapes = (D, T, B, P), (D, 2 * P, 4 * H), (D, 4 * H), (D, H, P)
    x, kernel, bias, projection = (torch.randn(shape, device=DEVICE).bfloat16() for shape in shapes)
    state = torch.zeros(1, D, B, P, device=DEVICE).bfloat16(), torch.zeros(1, D, B, H, device=DEVICE)
    x.requires_grad_()
    out, _, _ = bilstm(
        x, kernel, bias, projection * 1000, *state, None, cell_clip=None, proj_clip=clip, forget_bias=1.0, skip=False
    )
    out.sum().backward()
    clipped = (out.abs() >= 0.99 * clip).all(dim=-1)  # (D, T, B)
    assert clipped.any()
    assert x.grad is not None
    assert not x.grad[clipped].any()


def test_the_first_state_gets_no_gradient() -> None:
    D, T, B, P, H = 1, 3, 6, 8, 16
    shapes = (D, T, B, P), (D, 2 * P, 4 * H), (D, 4 * H), (D, H, P)
    parts = [torch.randn(shape, device=DEVICE) for shape in shapes]
    h, c = (torch.zeros(1, D, B, size, device=DEVICE, requires_grad=True) for size in (P, H))
    out, _, _ = bilstm(*parts, h, c, None, cell_clip=3.0, proj_clip=3.0, forget_bias=1.0, skip=False)
    assert not out.requires_grad


@pytest.mark.parametrize("filters", [((1, 32), (3, 64), (7, 100)), ((2, 5), (4, 30))])
def test_windows_without_convolutions_equal_the_convolutions(filters) -> None:
    plain = CharCNN(CharConfig(filters=filters, num_highways=0)).to(DEVICE)
    words = ["a", "the", "Unfathomable", "x" * 60, "漢字", "", "-", "mid-length-word"]
    ids = torch.from_numpy(np.stack([encode_token(word) for word in words])).to(DEVICE)
    weight = torch.randn(len(words), sum(count for _, count in filters), device=DEVICE)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    table = _with_padding_row(plain.table)
    weights, biases = zip(*((c.weight, c.bias) for c in plain.convolutions), strict=True)
    x = nn.functional.embedding(ids, table).transpose(1, 2)
    expected = torch.cat([convolution(x).amax(dim=-1) for convolution in plain.convolutions], dim=-1)
    found = strongest_windows(ids, table, list(weights), list(biases), torch.float32)
    assert relative(found, expected) < 1e-5
    gradients = [
        torch.autograd.grad((y * weight).sum(), plain.parameters(), retain_graph=True) for y in (found, expected)
    ]
    for mine, truth in zip(*gradients, strict=True):
        # where two windows answer alike to the last bit, rounding decides which of them gets the gradient
        assert relative(mine, truth) < 1e-2, relative(mine, truth)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sampled_softmax_equals_the_plain_one(dtype) -> None:
    plain = SoftmaxHead(500, 24).to(DEVICE)
    nn.init.normal_(plain.bias)
    hidden = torch.randn(70, 24, device=DEVICE).to(dtype)
    targets = torch.randint(0, 500, (70,), device=DEVICE) // 7  # frequent words, so that hits occur
    sample = Sample(*(value.to(DEVICE) for value in draw(500, 100, 3)))
    assert bool((targets[:, None] == sample.ids).any())

    def run(loss_of: Callable[[SoftmaxHead, Tensor], Tensor]) -> list[Tensor]:
        head, x = copy.deepcopy(plain), hidden.detach().requires_grad_()
        loss = loss_of(head, x)
        loss.backward()
        return [loss, x.grad, head.weight.grad, head.bias.grad]  # type: ignore[list-item]  # backward filled them

    def fused(head: SoftmaxHead, x: Tensor) -> Tensor:
        return sampled_softmax_loss(head, x, targets, sample, fused=sampled_cross_entropy)

    def ordinary(head: SoftmaxHead, x: Tensor) -> Tensor:
        return sampled_softmax_loss(head, x, targets, sample)

    for mine, truth in zip(run(fused), run(ordinary), strict=True):
        assert relative(mine, truth) < (1e-5 if dtype == torch.float32 else 3e-2)
