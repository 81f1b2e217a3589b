"""CudaBiLM against the plain biLM: random models of odd shapes, sentences of odd lengths.

The kernels run on CUDA or in Triton's interpreter: see triton_here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from triton_here import CUDA, DEVICE, HOPPER, MARKS

from elmo.kernels import packing
from elmo.kernels.cuda import steps as cuda_steps
from elmo.kernels.cuda.bilm import CudaBiLM
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, LSTMConfig, WordConfig
from elmo.model.lstm import State

pytestmark = MARKS

TOLERANCE = 2e-5  # float32 sums in a different order
RELATIVE_TOLERANCE = {torch.bfloat16: 0.01, torch.float16: 0.002}  # of the norm; the two round at different places
LENGTHS = [5, 1, 0, 7, 2, 0, 1]
LONG = [30, 1, 0, 70, 2, *[11] * 300]


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch) -> None:
    if not CUDA:  # the interpreter takes a millisecond per row
        monkeypatch.setattr(packing, "BUCKETS", (3,))
    monkeypatch.setattr(cuda_steps, "MAX_CHUNK_STEPS", 4)  # several chunks, long and short ones


def make_model(dtype: torch.dtype = torch.float32, *, scale: float = 2.0, both: bool = True, **lstm: Any) -> BiLM:
    """A random model. With a scale of 2 the clips take effect and small differences grow from step to step."""
    config = LSTMConfig(**{"num_layers": 2, "cell_dim": 21, "proj_dim": 10, **lstm})
    words = WordConfig(num_words=30, word_dim=config.proj_dim)
    model = BiLM(BiLMConfig(chars=None, words=words, lstm=config, bidirectional=both))
    for parameter in model.eval().requires_grad_(False).parameters():
        torch.nn.init.normal_(parameter, std=scale * parameter.shape[0] ** -0.5)
    return model.to(device=DEVICE, dtype=dtype)


def make_table(model: BiLM) -> torch.Tensor:
    return torch.randn(17, model.config.lstm.proj_dim, device=DEVICE).to(next(model.parameters()).dtype)


def run(bilm: CudaBiLM, table: torch.Tensor, words: np.ndarray, lengths: list[int], mix: np.ndarray, **options: Any):
    with bilm.at_work():
        vectors = bilm.contextualize(table, words, np.array(lengths, dtype=np.int64), mix, **options)
        return bilm.send(vectors, to_host=True).wait()


def plain_layers(model: BiLM, table: torch.Tensor, words: np.ndarray, lengths: list[int], state: State) -> torch.Tensor:
    """All layers (L + 1, N, D) of every word, computed one sentence at a time."""
    layers, end = [], 0
    for length in filter(None, lengths):
        begin, end = end, end + length
        rows = torch.tensor([0, *words[begin:end], 1], device=DEVICE)
        mask = torch.ones(1, len(rows), dtype=torch.bool, device=DEVICE)
        layers.append(model.contextualize(table[rows][None], mask, state).layers[:, 0, 1:-1])
    return torch.cat(layers, dim=1).cpu()


def check(model: BiLM, lengths: list[int], *, warm: bool = False, **options: Any) -> None:
    rng, config, dtype = np.random.default_rng(0), model.config, next(model.parameters()).dtype
    table, words = make_table(model), rng.integers(2, 17, sum(lengths)).astype(np.int32)
    state = model.zero_state(1)
    if warm:
        state = State(torch.rand_like(state.h) - 0.5, torch.rand_like(state.c) - 0.5)
    layers = plain_layers(model, table, words, lengths, state).float()
    mix = np.concatenate([np.eye(config.num_layers), rng.normal(size=(1, config.num_layers))]).astype(np.float32)
    expected = torch.einsum("kl,lnd->knd", torch.from_numpy(mix), layers)
    bilm = CudaBiLM(model, **options)
    initial = (state.h[:, :, 0], state.c[:, :, 0])
    for _ in range(2):  # the second call must not see state of the first
        actual = run(bilm, table, words, lengths, mix, initial=initial)
        assert actual.dtype == dtype
        assert_close(actual, expected, dtype)
    sentences = expected.split(lengths, dim=1)
    for pooling in ("mean", "max"):
        pooled = run(bilm, table, words, lengths, mix, initial=initial, pooling=pooling)  # (S, K, D)
        pool = torch.mean if pooling == "mean" else torch.amax
        zero = torch.zeros_like(expected[:, 0])
        expected_pooled = [pool(vectors, dim=1) if vectors.shape[1] else zero for vectors in sentences]
        assert_close(pooled, torch.stack(expected_pooled), dtype)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert actual.shape == expected.shape
    difference = actual.float() - expected
    if dtype == torch.float32:
        assert difference.abs().max() < TOLERANCE
    else:
        assert difference.norm() / expected.norm() < RELATIVE_TOLERANCE[dtype]


@pytest.mark.parametrize(
    "lstm",
    [
        {},
        {"cell_clip": 0.3, "proj_clip": 0.2},
        {"cell_clip": None, "proj_clip": None, "skip": False, "num_layers": 3},
        {"cell_dim": 10, "num_layers": 1, "forget_bias": 0.0},  # no projection, so no clip after it
    ],
)
def test_cuda_bilm_equals_the_plain_bilm(lstm: dict[str, Any]) -> None:
    check(make_model(**lstm), LENGTHS)


def test_sentences_start_from_the_initial_state() -> None:
    check(make_model(), LENGTHS, warm=True)


def test_model_may_have_one_direction() -> None:
    check(make_model(both=False), [3, 1])


@pytest.mark.parametrize("lengths", [[], [0, 0], [1]])
def test_few_or_no_words(lengths: list[int]) -> None:
    model = make_model()
    bilm, mix = CudaBiLM(model), np.eye(3, dtype=np.float32)
    words = np.full(sum(lengths), 2, dtype=np.int32)
    table = make_table(model)
    assert run(bilm, table, words, lengths, mix).shape == (3, len(words), 20)
    pooled = run(bilm, table, words, lengths, mix, pooling="max")
    assert pooled.shape == (len(lengths), 3, 20)
    assert pooled.isfinite().all()


def test_unused_layers_are_not_computed(monkeypatch) -> None:
    model = make_model()
    table, words = make_table(model), np.array([4, 5], dtype=np.int32)
    bilm = CudaBiLM(model, use_graphs=False)
    monkeypatch.setattr(torch, "bmm", None)
    vectors = run(bilm, table, words, [2], np.eye(3, dtype=np.float32)[:1])
    assert torch.equal(vectors[0], table[[4, 5]].repeat(1, 2).cpu())


def test_nan_propagates() -> None:
    model = make_model()
    table, words = make_table(model), np.array([4, 5], dtype=np.int32)
    table[5] = float("nan")
    mix = np.eye(3, dtype=np.float32)[2:]
    assert run(CudaBiLM(model), table, words, [1, 1], mix).isnan().any(dim=-1).tolist() == [[False, True]]
    pooled = run(CudaBiLM(model), table, words, [2], mix, pooling="max")
    assert pooled.isnan().any()


@pytest.mark.skipif(not CUDA, reason="half precision in the interpreter is not representative")
@pytest.mark.parametrize("dtype", list(RELATIVE_TOLERANCE))
@pytest.mark.parametrize(
    "lstm",
    # the last two sizes are supported by the fused kernel for gates and cells
    [
        {"cell_dim": 300, "proj_dim": 72},
        {"cell_dim": 2100, "proj_dim": 264},
        {"cell_dim": 256, "proj_dim": 64},
        {"cell_dim": 2048, "proj_dim": 256},
    ],
)
def test_half_precision_is_close_to_the_plain_bilm(dtype: torch.dtype, lstm: dict[str, Any]) -> None:
    check(make_model(dtype, scale=1.0, **lstm), LONG)


@pytest.mark.skipif(not HOPPER, reason="the fused kernel needs a Hopper GPU")
def test_long_texts_use_the_fused_kernel() -> None:
    bilm = CudaBiLM(make_model(torch.float16, cell_dim=256, proj_dim=64))
    words = np.full(sum(LONG), 2, dtype=np.int32)
    run(bilm, make_table(bilm.model), words, LONG, np.eye(3, dtype=np.float32))
    launchers = [runner._launcher for runner in bilm._runners.values()]
    assert launchers
    assert all(launcher.is_fused for launcher in launchers)


@pytest.mark.skipif(not CUDA, reason="CUDA graphs need CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("lstm", [{"cell_dim": 256, "proj_dim": 64}, {"cell_dim": 2100, "proj_dim": 264}])
def test_replayed_graphs_equal_launched_steps(dtype: torch.dtype, lstm: dict[str, Any]) -> None:
    model = make_model(dtype, scale=1.0, **lstm)
    table, words = make_table(model), np.random.default_rng(0).integers(2, 17, sum(LONG)).astype(np.int32)
    mix = np.eye(3, dtype=np.float32)
    bilms = CudaBiLM(model, use_graphs=False), CudaBiLM(model)
    for mix_rows in (mix[:2], mix, mix[:2]):  # a graph of fewer layers still works after one of more layers
        assert torch.equal(*(run(bilm, table, words, LONG, mix_rows) for bilm in bilms))
    check(model, LONG)
