"""What a step is fed equals the batch it was made of, and a recorded step equals the plain one."""

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


def a_batch(rng: np.random.Generator, rows: int, steps: int, types: int, resets: float = 0.0) -> LMBatch:
    def direction() -> Direction:
        inputs, targets = (rng.integers(types, size=(rows, steps)).astype(np.int32) for _ in range(2))
        return Direction(inputs, targets, rng.random((rows, steps)) < resets, None)

    return LMBatch(direction(), direction())


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 7), st.integers(1, 60), st.booleans())
def test_a_feed_holds_what_the_batch_does(seed: int, rows: int, steps: int, types: int, even: bool) -> None:
    batch = a_batch(np.random.default_rng(seed), rows, steps, types, resets=0.3)
    builder = InputBuilder(types, 2, with_resets=True, bucketed=even)
    for part in (slice(0, rows), slice(0, 1)):  # one after the other: nothing of the first is left in the second
        inputs = builder.build(batch, part, draw_samples(50, 8, 1, 2, 2))
        for d, direction in enumerate((batch.forward, batch.backward)):
            read = inputs.types[inputs.type_index[d].long()]  # (T, B)
            assert np.array_equal(read.T.numpy(), direction.inputs[part])
            assert np.array_equal(inputs.targets[d].reshape(steps, -1).T.numpy(), direction.targets[part])
            assert inputs.resets is not None
            assert np.array_equal(inputs.resets[d].T.numpy(), direction.resets[part])
        distinct = len(np.unique([batch.forward.inputs[part], batch.backward.inputs[part]]))
        assert len(inputs.types) == (bucket_size(distinct) if even else distinct)
        assert [len(sample.ids) for sample in inputs.samples] == [8, 8]


@given(st.integers(1, 2_000_000))
def test_few_numbers_stand_for_all(count: int) -> None:
    rounded = bucket_size(count)
    assert count <= rounded <= count + max(1, count // 8)
    assert bucket_size(rounded) == rounded


def test_between_two_powers_of_two_there_are_sixteen() -> None:
    assert len({bucket_size(n) for n in range(1025, 2049)}) == 16


def test_resets_are_left_out_where_there_are_none() -> None:
    batch = a_batch(np.random.default_rng(0), 3, 4, 10)
    assert InputBuilder(10, 1, with_resets=False, bucketed=False).build(batch, slice(0, 3), []).resets is None
    assert InputBuilder(10, 1, with_resets=True, bucketed=False).build(batch, slice(0, 3), []).resets is not None


def on_gpu(**train: Any) -> Trainer:
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
def test_recorded_steps_are_the_plain_ones(precision: str) -> None:
    rng = np.random.default_rng(0)
    batches = [a_batch(rng, 16, 8, 500, resets=0.2) for _ in range(6)]
    found = []
    for recorded in (True, False):
        trainer = on_gpu(precision=precision)
        assert trainer._graphs is not None
        if not recorded:
            trainer._graphs = None
        metrics = [trainer.step(batch, number) for number, batch in enumerate(batches)]
        found.append((metrics, [p.detach().clone() for p in trainer.parameters], trainer.state))
    for mine, plain in zip(found[0][0], found[1][0], strict=True):
        assert mine.forward == pytest.approx(plain.forward, rel=1e-4)
        assert mine.grad_norm == pytest.approx(plain.grad_norm, rel=1e-3)
    for mine, plain in zip(found[0][1], found[1][1], strict=True):  # scattered gradients add up in any order
        torch.testing.assert_close(mine, plain, rtol=1e-3, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("recorded", [True, False])
def test_a_bad_step_on_the_gpu_changes_nothing(recorded: bool) -> None:
    rng = np.random.default_rng(0)
    trainer = on_gpu()
    if not recorded:
        trainer._graphs = None
    assert not trainer.step(a_batch(rng, 16, 8, 500), 0).skipped
    weights = [p.detach().clone() for p in trainer.parameters]
    sums = [{k: v.clone() for k, v in state.items()} for state in trainer.optimizer.state.values()]
    good = trainer.state
    trainer.state = State(good.h.clone(), good.c.clone())
    trainer.state.c[0, 0, 0, 0] = float("nan")
    assert trainer.step(a_batch(rng, 16, 8, 500), 1).skipped
    assert all(torch.equal(a, b) for a, b in zip(weights, trainer.parameters, strict=True))
    for before, after in zip(sums, trainer.optimizer.state.values(), strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before)
    trainer.state = good
    assert not trainer.step(a_batch(rng, 16, 8, 500), 2).skipped
