"""The CUDA twin of the whole biLM against the plain one: fresh random models of odd shapes, sentences of odd lengths.

On CUDA, or in Triton's interpreter: see triton_here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from triton_here import CUDA, DEVICE, HOPPER, MARKS

from elmo.kernels import packing
from elmo.kernels.cuda import steps as steps_cuda
from elmo.kernels.cuda.bilm import CudaBiLM
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, LSTMConfig, WordConfig
from elmo.model.lstm import State

pytestmark = MARKS

SAME = 2e-5  # float32 sums in another order
ROUGH = {torch.bfloat16: 0.01, torch.float16: 0.002}  # of the vectors' length; each rounds at other places
LENGTHS = [5, 1, 0, 7, 2, 0, 1]
LONG = [30, 1, 0, 70, 2, *[11] * 300]


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch) -> None:
    if not CUDA:  # the interpreter takes a millisecond for a row
        monkeypatch.setattr(packing, "BUCKETS", (3,))
    monkeypatch.setattr(steps_cuda, "LONGEST", 4)  # several stretches, long and short ones


def make_model(dtype: torch.dtype = torch.float32, *, scale: float = 2.0, both: bool = True, **lstm: Any) -> BiLM:
    """With a scale of 2 clips bind, and small differences grow from step to step; with 1 neither."""
    chosen = LSTMConfig(**{"num_layers": 2, "cell_dim": 21, "proj_dim": 10, **lstm})
    words = WordConfig(num_words=30, word_dim=chosen.proj_dim)
    model = BiLM(BiLMConfig(chars=None, words=words, lstm=chosen, bidirectional=both))
    for parameter in model.eval().requires_grad_(False).parameters():
        torch.nn.init.normal_(parameter, std=scale * parameter.shape[0] ** -0.5)
    return model.to(device=DEVICE, dtype=dtype)


def make_table(model: BiLM) -> torch.Tensor:
    return torch.randn(17, model.config.lstm.proj_dim, device=DEVICE).to(next(model.parameters()).dtype)


def run(twin: CudaBiLM, table: torch.Tensor, words: np.ndarray, lengths: list[int], mix: np.ndarray, **options: Any):
    with twin.at_work():
        found = twin.contextualize(table, words, np.array(lengths, dtype=np.int64), mix, **options)
        return twin.send(found, to_host=True).wait()


def plain(model: BiLM, table: torch.Tensor, words: np.ndarray, lengths: list[int], state: State) -> torch.Tensor:
    """All layers (L + 1, N, D) of every word, each sentence on its own."""
    found, end = [], 0
    for length in filter(None, lengths):
        begin, end = end, end + length
        rows = torch.tensor([0, *words[begin:end], 1], device=DEVICE)
        mask = torch.ones(1, len(rows), dtype=torch.bool, device=DEVICE)
        found.append(model.contextualize(table[rows][None], mask, state).layers[:, 0, 1:-1])
    return torch.cat(found, dim=1).cpu()


def check(model: BiLM, lengths: list[int], *, warm: bool = False, **options: Any) -> None:
    rng, config, dtype = np.random.default_rng(0), model.config, next(model.parameters()).dtype
    table, words = make_table(model), rng.integers(2, 17, sum(lengths)).astype(np.int32)
    state = model.zero_state(1)
    if warm:
        state = State(torch.rand_like(state.h) - 0.5, torch.rand_like(state.c) - 0.5)
    expected = plain(model, table, words, lengths, state).float()
    mix = np.concatenate([np.eye(config.num_layers), rng.normal(size=(1, config.num_layers))]).astype(np.float32)
    mixed = torch.einsum("kl,lnd->knd", torch.from_numpy(mix), expected)
    twin = CudaBiLM(model, **options)
    initial = (state.h[:, :, 0], state.c[:, :, 0])
    for _ in range(2):  # what the first time leaves behind must not show
        found = run(twin, table, words, lengths, mix, initial=initial)
        assert found.dtype == dtype
        same(found, mixed, dtype)
    parts = mixed.split(lengths, dim=1)
    for pooling in ("mean", "max"):
        pooled = run(twin, table, words, lengths, mix, initial=initial, pooling=pooling)  # (S, K, D)
        of = torch.mean if pooling == "mean" else torch.amax
        wanted = [of(part, dim=1) if part.shape[1] else torch.zeros_like(mixed[:, 0]) for part in parts]
        same(pooled, torch.stack(wanted), dtype)


def same(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.shape == wanted.shape
    difference = found.float() - wanted
    if dtype == torch.float32:
        assert difference.abs().max() < SAME
    else:
        assert difference.norm() / wanted.norm() < ROUGH[dtype]


@pytest.mark.parametrize(
    "lstm",
    [
        {},
        {"cell_clip": 0.3, "proj_clip": 0.2},
        {"cell_clip": None, "proj_clip": None, "skip": False, "num_layers": 3},
        {"cell_dim": 10, "num_layers": 1, "forget_bias": 0.0},  # no projection, so no clip after it
    ],
)
def test_the_twin_equals_the_plain_network(lstm: dict[str, Any]) -> None:
    check(make_model(**lstm), LENGTHS)


def test_sentences_may_start_from_a_given_state() -> None:
    check(make_model(), LENGTHS, warm=True)


def test_one_direction_is_enough() -> None:
    check(make_model(both=False), [3, 1])


@pytest.mark.parametrize("lengths", [[], [0, 0], [1]])
def test_few_words_and_none(lengths: list[int]) -> None:
    model = make_model()
    twin, mix = CudaBiLM(model), np.eye(3, dtype=np.float32)
    words = np.full(sum(lengths), 2, dtype=np.int32)
    table = make_table(model)
    assert run(twin, table, words, lengths, mix).shape == (3, len(words), 20)
    pooled = run(twin, table, words, lengths, mix, pooling="max")
    assert pooled.shape == (len(lengths), 3, 20)
    assert pooled.isfinite().all()


def test_layers_nobody_wants_are_not_computed(monkeypatch) -> None:
    model = make_model()
    table, words = make_table(model), np.array([4, 5], dtype=np.int32)
    twin = CudaBiLM(model, use_graphs=False)
    monkeypatch.setattr(torch, "bmm", None)
    found = run(twin, table, words, [2], np.eye(3, dtype=np.float32)[:1])
    assert torch.equal(found[0], table[[4, 5]].repeat(1, 2).cpu())


def test_not_a_number_stays_visible() -> None:
    model = make_model()
    table, words = make_table(model), np.array([4, 5], dtype=np.int32)
    table[5] = float("nan")
    mix = np.eye(3, dtype=np.float32)[2:]
    assert run(CudaBiLM(model), table, words, [1, 1], mix).isnan().any(dim=-1).tolist() == [[False, True]]
    pooled = run(CudaBiLM(model), table, words, [2], mix, pooling="max")
    assert pooled.isnan().any()


@pytest.mark.skipif(not CUDA, reason="the interpreter has no half precision worth testing")
@pytest.mark.parametrize("dtype", list(ROUGH))
@pytest.mark.parametrize(
    "lstm",
    # the last ones fit the kernel that makes gates and cells in one
    [
        {"cell_dim": 300, "proj_dim": 72},
        {"cell_dim": 2100, "proj_dim": 264},
        {"cell_dim": 256, "proj_dim": 64},
        {"cell_dim": 2048, "proj_dim": 256},
    ],
)
def test_halves_are_near_the_plain_network(dtype: torch.dtype, lstm: dict[str, Any]) -> None:
    check(make_model(dtype, scale=1.0, **lstm), LONG)


@pytest.mark.skipif(not HOPPER, reason="the kernel is Hopper's")
def test_rows_of_long_texts_go_through_one_kernel() -> None:
    twin = CudaBiLM(make_model(torch.float16, cell_dim=256, proj_dim=64))
    words = np.full(sum(LONG), 2, dtype=np.int32)
    run(twin, make_table(twin.model), words, LONG, np.eye(3, dtype=np.float32))
    used = [stretch._steps for stretch in twin._stretches.values()]
    assert used
    assert all(steps.by_one_kernel for steps in used)


@pytest.mark.skipif(not CUDA, reason="graphs are CUDA's")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("lstm", [{"cell_dim": 256, "proj_dim": 64}, {"cell_dim": 2100, "proj_dim": 264}])
def test_recorded_steps_equal_launched_ones(dtype: torch.dtype, lstm: dict[str, Any]) -> None:
    model = make_model(dtype, scale=1.0, **lstm)
    table, words = make_table(model), np.random.default_rng(0).integers(2, 17, sum(LONG)).astype(np.int32)
    mix = np.eye(3, dtype=np.float32)
    twins = CudaBiLM(model, use_graphs=False), CudaBiLM(model)
    for wanted in (mix[:2], mix, mix[:2]):  # graphs of fewer layers are as good as before when there are some of more
        assert torch.equal(*(run(twin, table, words, LONG, wanted) for twin in twins))
    check(model, LONG)
