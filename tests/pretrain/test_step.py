"""Training steps compared with the NumPy oracle: losses, gradient norm, weights, Adagrad's sums and LSTM states."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import oracle
import oracle_train
import pytest
import torch

from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, HeadConfig, LSTMConfig, WordConfig
from elmo.pretrain.config import ObjectiveConfig, OptimConfig, RunConfig, TrainConfig
from elmo.pretrain.data.stream import Direction, LMBatch
from elmo.pretrain.train import step as step_module
from elmo.pretrain.train.sampler import draw
from elmo.pretrain.train.step import Trainer, step_seed
from elmo.weights.names import from_arrays, tensor_specs, to_published
from elmo.weights.options import config_from_options

B, T, V, SAMPLES = 3, 4, 11, 5
SMALL: dict[str, Any] = {"projection_dim": 4, "lstm_projection": True, "cell_clip": 0.8, "proj_clip": 0.5}
CASES: dict[str, dict[str, Any]] = {
    "characters, sampled": {"char_input": True, "n_layers": 2, "n_highway": 1, "sampled": True},
    "characters, full, skips": {"char_input": True, "n_layers": 2, "n_highway": 2, "skip": True},
    "characters, sampled, one layer": {"char_input": True, "n_layers": 1, "n_highway": 0, "sampled": True},
    "characters, one direction": {"char_input": True, "n_layers": 2, "n_highway": 1, "bidirectional": False},
    "words, full": {"char_input": False, "n_layers": 1},
    "words, sampled, skips": {"char_input": False, "n_layers": 2, "skip": True, "sampled": True},
    "words, tied, sampled": {"char_input": False, "n_layers": 2, "tied": True, "sampled": True},
    "words, tied, full": {"char_input": False, "n_layers": 1, "tied": True},
    "words, unprojected": {"char_input": False, "n_layers": 2, "lstm_projection": False, "skip": True},
}


def paper_config(rows: int = B, steps: int = T, **changes: Any) -> RunConfig:
    """The settings of the reference implementation at the size of these tests."""
    optim = {"name": "adagrad", "lr": 0.2, "warmup": 0.0, "decay": "none", "times_unroll": True} | changes.get(
        "optim", {}
    )
    objective = {"softmax": "full", "num_samples": SAMPLES, "dropout": 0.0} | changes.get("objective", {})
    train = {"rows": rows, "steps": steps, "max_steps": 100, "precision": "float32"} | changes.get("train", {})
    return RunConfig(objective=ObjectiveConfig(**objective), optim=OptimConfig(**optim), train=TrainConfig(**train))


class Case:
    """The same tiny model for our code and for the oracle, a table of word types, and batches for both."""

    def __init__(self, clip_norm: float = 10.0, *, seed: int = 0, sampled: bool = False, **options: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.options, weights = oracle.random_model(self.rng, softmax=True, max_chars=8, **SMALL | options)
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.accumulators = oracle_train.initial_accumulators(self.weights)
        self.chars, self.sampled, self.clip_norm = "char_cnn" in self.options, sampled, clip_norm
        self.num_directions = oracle.num_directions(self.options)
        tied = options.get("tied", False)
        shape = config_from_options(self.options, "options", num_words=None if self.chars else V)
        self.shape = replace(shape, head=HeadConfig(vocab_size=V, tied=tied))
        model = BiLM(self.shape)
        model.load_state_dict(from_arrays(self.shape, weights, "oracle"), strict=not tied)
        config = paper_config(objective={"softmax": "sampled" if sampled else "full"}, optim={"clip_norm": clip_norm})
        if self.chars:
            words = [f"w{k}" * (1 + k % 3) for k in range(20)]
            rows = oracle.char_ids(words, 8)[1:-1]  # (20, 8)
        else:
            rows = np.arange(1, V + 1)[:, None]
        self.rows = rows
        self.trainer = Trainer(model, torch.from_numpy(rows.astype(np.int32)), config)

    def batch(self, resets: bool = False) -> LMBatch:
        return LMBatch(*(self._direction(resets) for _ in range(2)))

    def _direction(self, resets: bool) -> Direction:
        inputs = self.rng.integers(len(self.rows), size=(B, T)).astype(np.int32)
        targets = self.rng.integers(V, size=(B, T)).astype(np.int32)
        return Direction(inputs, targets, self.rng.random((B, T)) < (0.4 if resets else 0), None)

    def oracle_step(self, batch: LMBatch, number: int, states: oracle_train.States | None) -> oracle_train.Step:
        batches = []
        for d, direction in enumerate([batch.forward, batch.backward][: self.num_directions]):
            ids = self.rows[direction.inputs] - 1  # (B, T, C)
            negatives = None
            if self.sampled:
                sample = draw(V, SAMPLES, step_seed(0, number, "negatives", d))
                counts = [
                    oracle_train.log_uniform_expected(words, int(sample.num_tries), V)
                    for words in (sample.ids.numpy(), direction.targets)
                ]
                negatives = oracle_train.Negatives(ids=sample.ids.numpy(), expected=counts[0], true_expected=counts[1])
            batches.append(
                oracle_train.Batch(
                    ids=ids if self.chars else ids[..., 0], targets=direction.targets, negatives=negatives
                )
            )
        step = oracle_train.train_step(
            self.options, self.weights, self.accumulators, batches, states, clip_norm=self.clip_norm
        )
        self.weights, self.accumulators = step.weights, step.accumulators
        return step

    def arrays(self) -> dict[str, np.ndarray]:
        tensors = dict(self.trainer.model.state_dict())
        return {spec.published_name: to_published(spec, tensors[spec.name]) for spec in tensor_specs(self.shape)}

    def sums(self) -> dict[str, np.ndarray]:
        state = self.trainer.optimizer.state
        named = dict(self.trainer.model.named_parameters())
        specs = tensor_specs(self.shape)
        return {spec.published_name: to_published(spec, state[named[spec.name]]["sum"]) for spec in specs}


@pytest.mark.parametrize("clip_norm", [10.0, 0.05])  # above and below the norm of the gradient
@pytest.mark.parametrize("case", CASES)
def test_three_steps_equal_the_oracle(case: str, clip_norm: float) -> None:
    """The state is carried. Float32 is compared with float64 at weights of about 1, so 1e-5 is rounding error."""
    ours = Case(clip_norm, **CASES[case])
    states = None
    for number in range(3):
        batch = ours.batch()
        expected = ours.oracle_step(batch, number, states)
        metrics = ours.trainer.step(batch, number)
        losses = [metrics.forward, metrics.backward][: ours.num_directions]
        np.testing.assert_allclose(losses, expected.losses, atol=1e-5)
        assert metrics.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)
        assert (expected.grad_norm > clip_norm) == (clip_norm < 1)
        for name, array in ours.arrays().items():
            np.testing.assert_allclose(array, expected.weights[name], atol=1e-5, err_msg=name)
        for name, array in ours.sums().items():
            np.testing.assert_allclose(array, expected.accumulators[name], atol=2e-4, rtol=1e-5, err_msg=name)
        states = expected.states
        for d in range(ours.num_directions):
            for layer, (h, c) in enumerate(states[d]):
                np.testing.assert_allclose(ours.trainer.state.h[d, layer].numpy(), h, atol=1e-5)
                np.testing.assert_allclose(ours.trainer.state.c[d, layer].numpy(), c, atol=1e-5)


def test_reset_inside_a_row_starts_from_a_zero_state() -> None:
    """Each row is split at its resets: the parts, each from a zero state, give the same mean loss and final state."""
    case = Case(**CASES["words, sampled, skips"])
    trainer, model = case.trainer, case.trainer.model
    trainer.state = type(trainer.state)(torch.randn_like(trainer.state.h), torch.randn_like(trainer.state.c))
    batch = case.batch(resets=True)
    assert batch.forward.resets[:, 1:].any()
    inputs = trainer._input_builder.build(batch, slice(0, B), [])
    losses, final = trainer.losses(inputs, trainer.state)
    zero = model.zero_state(1)
    for d, direction in enumerate((batch.forward, batch.backward)):
        total = 0.0
        for row in range(B):
            cuts = [0, *np.flatnonzero(direction.resets[row]), T]
            state = [trainer.state.h[d, :, row : row + 1], trainer.state.c[d, :, row : row + 1]]
            for begin, end in pairwise(cuts):
                if direction.resets[row, begin]:
                    state = [zero.h[d], zero.c[d]]
                if begin == end:
                    continue
                ids = torch.from_numpy(case.rows[direction.inputs[row, begin:end]]).int()
                x = model.token_encoder(ids)[None]  # (1, T', P)
                layers, state = model.stacks[d](x, None, type(trainer.state)(*state))
                targets = torch.from_numpy(direction.targets[row, begin:end]).long()
                total -= model.head.log_probs(layers[-1][0], targets).sum().item()
            torch.testing.assert_close(final.h[d, :, row], state.h[:, 0].detach())  # type: ignore[attr-defined]
            torch.testing.assert_close(final.c[d, :, row], state.c[:, 0].detach())  # type: ignore[attr-defined]
        assert losses[d].item() == pytest.approx(total / (B * T), abs=1e-5)


def test_reset_at_every_row_start_ignores_the_previous_state() -> None:
    first, second = (Case(**CASES["words, full"]) for _ in range(2))
    batch = first.batch()
    starts = np.zeros((B, T), dtype=bool)
    starts[:, 0] = True
    reset_batch = LMBatch(replace(batch.forward, resets=starts), replace(batch.backward, resets=starts))
    first.trainer.state = type(first.trainer.state)(*(torch.randn_like(x) for x in first.trainer.state))
    assert first.trainer.step(reset_batch, 0) == second.trainer.step(batch, 0)


def tiny_trainer(**changes: Any) -> Trainer:
    """A character model of 50 words with 8 rows of 6 steps."""
    shape = BiLMConfig(
        chars=CharConfig(filters=((1, 4), (2, 8)), char_dim=4, max_chars=6, num_highways=1),
        lstm=LSTMConfig(cell_dim=12, proj_dim=8),
        head=HeadConfig(vocab_size=50),
    )
    torch.manual_seed(1)
    rows = torch.randint(1, 200, (60, 6), dtype=torch.int32)
    objective = {"softmax": "sampled", "num_samples": 20} | changes.pop("objective", {})
    return Trainer(BiLM(shape), rows, paper_config(8, 6, objective=objective, **changes))


def tiny_batch(seed: int) -> LMBatch:
    rng = np.random.default_rng(seed)

    def direction() -> Direction:
        inputs, targets = rng.integers(60, size=(8, 6)), rng.integers(50, size=(8, 6))
        return Direction(inputs.astype(np.int32), targets.astype(np.int32), rng.random((8, 6)) < 0.2, None)

    return LMBatch(direction(), direction())


@pytest.mark.parametrize("accumulate", [2, 8])
def test_accumulated_micro_batches_equal_one_batch(accumulate: int) -> None:
    whole, parts = tiny_trainer(), tiny_trainer(train={"accumulate": accumulate})
    for number in range(4):
        a, b = whole.step(tiny_batch(number), number), parts.step(tiny_batch(number), number)
        assert (a.forward, a.backward) == pytest.approx((b.forward, b.backward), abs=1e-5)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(whole.state.h, parts.state.h, atol=1e-5, rtol=1e-4)


def test_sparse_softmax_steps_equal_dense_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = tiny_trainer()
    monkeypatch.setattr(step_module, "MIN_SPARSE_VOCAB", 1)
    sparse = tiny_trainer()
    for number in range(4):
        a, b = dense.step(tiny_batch(number), number), sparse.step(tiny_batch(number), number)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)
    assert sparse.model.head.weight.grad.is_sparse
    for a, b in zip(dense.model.parameters(), sparse.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_bfloat16_learns_and_stays_close_to_float32() -> None:
    exact, rough = tiny_trainer(), tiny_trainer(train={"precision": "bfloat16"})
    assert rough.state.h.dtype == torch.bfloat16
    assert rough.state.c.dtype == torch.float32
    batch, first = tiny_batch(0), None
    for number in range(20):
        a, b = exact.step(batch, number), rough.step(batch, number)
        first = first or b
        assert b.forward == pytest.approx(a.forward, rel=0.03)
    assert b.forward < first.forward
    assert all(p.dtype == torch.float32 for p in rough.model.parameters())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_step_with_non_finite_loss_changes_nothing(bad: float) -> None:
    trainer = tiny_trainer()
    trainer.step(tiny_batch(0), 0)
    with torch.no_grad():
        good = trainer.model.head.bias[7].item()
        trainer.model.head.bias[7] = bad
    before = [p.detach().clone() for p in trainer.model.parameters()]
    sums = [value["sum"].clone() for value in trainer.optimizer.state.values()]
    state = [tensor.clone() for tensor in trainer.state]
    assert trainer.step(tiny_batch(1), 1).skipped
    for a, b in zip(before, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=0, atol=0, equal_nan=True)
    assert all(torch.equal(a, b["sum"]) for a, b in zip(sums, trainer.optimizer.state.values(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(state, trainer.state, strict=True))
    with torch.no_grad():
        trainer.model.head.bias[7] = good
    assert not trainer.step(tiny_batch(2), 2).skipped


def test_random_numbers_depend_only_on_the_step() -> None:
    """Dropout and negatives of step 3 do not depend on earlier random numbers; those of step 4 differ."""
    first, second, third = (tiny_trainer(objective={"dropout": 0.3}) for _ in range(3))
    torch.manual_seed(99)
    torch.rand(7)
    a, b, c = first.step(tiny_batch(0), 3), second.step(tiny_batch(0), 3), third.step(tiny_batch(0), 4)
    assert a == b
    assert a.forward != c.forward


def test_model_of_one_direction_reports_its_loss_twice() -> None:
    shape = BiLMConfig(
        chars=None,
        words=WordConfig(num_words=V, word_dim=4),
        lstm=LSTMConfig(cell_dim=8, proj_dim=4),
        bidirectional=False,
        head=HeadConfig(vocab_size=V),
    )
    trainer = Trainer(BiLM(shape), torch.arange(1, V + 1, dtype=torch.int32)[:, None], paper_config())
    metrics = trainer.step(Case(**CASES["words, full"]).batch(), 0)
    assert metrics.forward == metrics.backward
