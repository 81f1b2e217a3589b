"""The inputs of a step hold the content of its batch, and a replayed CUDA graph equals the eager step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, HeadConfig, LSTMConfig
from elmo.model.lstm import State
from elmo.pretrain.config import make_config
from elmo.pretrain.data.stream import Direction, LMBatch
from elmo.pretrain.train.step import Trainer
from elmo.pretrain.train.step_inputs import InputBuilder, bucket_size, draw_samples


def random_batch(rng: np.random.Generator, rows: int, steps: int, types: int, resets: float = 0.0) -> LMBatch:
    def direction() -> Direction:
        inputs, targets = (rng.integers(types, size=(rows, steps)).astype(np.int32) for _ in range(2))
        return Direction(inputs, targets, rng.random((rows, steps)) < resets, None)

    return LMBatch(direction(), direction())


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 7), st.integers(1, 60), st.booleans())
def test_inputs_hold_the_content_of_the_batch(seed: int, rows: int, steps: int, types: int, bucketed: bool) -> None:
    batch = random_batch(np.random.default_rng(seed), rows, steps, types, resets=0.3)
    builder = InputBuilder(types, 2, with_resets=True, bucketed=bucketed)
    for part in (slice(0, rows), slice(0, 1)):  # in sequence: no state of the first build is left for the second
        inputs = builder.build(batch, part, draw_samples(50, 8, 1, 2, 2))
        for d, direction in enumerate((batch.forward, batch.backward)):
            types_read = inputs.types[inputs.type_index[d].long()]  # (T, B)
            assert np.array_equal(types_read.T.numpy(), direction.inputs[part])
            assert np.array_equal(inputs.targets[d].reshape(steps, -1).T.numpy(), direction.targets[part])
            assert inputs.resets is not None
            assert np.array_equal(inputs.resets[d].T.numpy(), direction.resets[part])
        distinct = len(np.unique([batch.forward.inputs[part], batch.backward.inputs[part]]))
        assert len(inputs.types) == (bucket_size(distinct) if bucketed else distinct)
        assert [len(sample.ids) for sample in inputs.samples] == [8, 8]


@given(st.integers(1, 2_000_000))
def test_bucket_sizes_are_at_most_an_eighth_larger_than_the_count(count: int) -> None:
    rounded = bucket_size(count)
    assert count <= rounded <= count + max(1, count // 8)
    assert bucket_size(rounded) == rounded


def test_there_are_16_bucket_sizes_between_two_powers_of_two() -> None:
    assert len({bucket_size(n) for n in range(1025, 2049)}) == 16


def test_resets_are_none_for_a_batch_without_resets() -> None:
    batch = random_batch(np.random.default_rng(0), 3, 4, 10)
    assert InputBuilder(10, 1, with_resets=False, bucketed=False).build(batch, slice(0, 3), []).resets is None
    assert InputBuilder(10, 1, with_resets=True, bucketed=False).build(batch, slice(0, 3), []).resets is not None


def gpu_trainer(**train: Any) -> Trainer:
    shape = BiLMConfig(
        chars=CharConfig(filters=((1, 16), (2, 16), (3, 32)), char_dim=8, num_highways=1),
        lstm=LSTMConfig(cell_dim=64, proj_dim=32),
        head=HeadConfig(vocab_size=500),
    )
    torch.manual_seed(1)
    rows = torch.randint(1, 200, (600, 50), dtype=torch.int32)
    config = make_config(
        {"objective": {"num_samples": 64}, "train": {"rows": 16, "steps": 8, "max_steps": 100, "reset": 0.5, **train}}
    )
    return Trainer(BiLM(shape).cuda(), rows.cuda(), config)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_replayed_steps_equal_eager_steps(precision: str) -> None:
    rng = np.random.default_rng(0)
    batches = [random_batch(rng, 16, 8, 500, resets=0.2) for _ in range(6)]
    results = []
    for replayed in (True, False):
        trainer = gpu_trainer(precision=precision)
        assert trainer._graphs is not None
        if not replayed:
            trainer._graphs = None
        metrics = [trainer.step(batch, number) for number, batch in enumerate(batches)]
        results.append((metrics, [p.detach().clone() for p in trainer.parameters], trainer.state))
    for replay, eager in zip(results[0][0], results[1][0], strict=True):
        assert replay.forward == pytest.approx(eager.forward, rel=1e-4)
        assert replay.grad_norm == pytest.approx(eager.grad_norm, rel=1e-3)
    for replay, eager in zip(results[0][1], results[1][1], strict=True):  # scattered gradients add up in any order
        torch.testing.assert_close(replay, eager, rtol=1e-3, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("replayed", [True, False])
def test_step_with_non_finite_loss_on_the_gpu_changes_nothing(replayed: bool) -> None:
    rng = np.random.default_rng(0)
    trainer = gpu_trainer()
    if not replayed:
        trainer._graphs = None
    assert not trainer.step(random_batch(rng, 16, 8, 500), 0).skipped
    weights = [p.detach().clone() for p in trainer.parameters]
    sums = [{k: v.clone() for k, v in state.items()} for state in trainer.optimizer.state.values()]
    good = trainer.state
    trainer.state = State(good.h.clone(), good.c.clone())
    trainer.state.c[0, 0, 0, 0] = float("nan")
    assert trainer.step(random_batch(rng, 16, 8, 500), 1).skipped
    assert all(torch.equal(a, b) for a, b in zip(weights, trainer.parameters, strict=True))
    for before, after in zip(sums, trainer.optimizer.state.values(), strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before)
    trainer.state = good
    assert not trainer.step(random_batch(rng, 16, 8, 500), 2).skipped
