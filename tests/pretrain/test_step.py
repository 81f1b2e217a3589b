"""One training step against the slow training oracle: losses, gradient norm, weights, Adagrad's sums, states."""

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
from elmo.weights.names import from_arrays, table, to_published
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


def paper(rows: int = B, steps: int = T, **changes: Any) -> RunConfig:
    """The reference's settings at the size of these tests."""
    optim = {"name": "adagrad", "lr": 0.2, "warmup": 0.0, "decay": "none", "times_unroll": True} | changes.get(
        "optim", {}
    )
    objective = {"softmax": "full", "num_samples": SAMPLES, "dropout": 0.0} | changes.get("objective", {})
    train = {"rows": rows, "steps": steps, "max_steps": 100, "precision": "float32"} | changes.get("train", {})
    return RunConfig(objective=ObjectiveConfig(**objective), optim=OptimConfig(**optim), train=TrainConfig(**train))


class Case:
    """The same tiny model as ours and as the oracle's, a table of word types, and batches for both."""

    def __init__(self, clip_norm: float = 10.0, *, seed: int = 0, sampled: bool = False, **choices: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.options, weights = oracle.random_model(self.rng, softmax=True, max_chars=8, **SMALL | choices)
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}
        self.accumulators = oracle_train.initial_accumulators(self.weights)
        self.chars, self.sampled, self.clip_norm = "char_cnn" in self.options, sampled, clip_norm
        self.num_directions = oracle.num_directions(self.options)
        tied = choices.get("tied", False)
        shape = config_from_options(self.options, "options", num_words=None if self.chars else V)
        self.shape = replace(shape, head=HeadConfig(vocab_size=V, tied=tied))
        model = BiLM(self.shape)
        model.load_state_dict(from_arrays(self.shape, weights, "oracle"), strict=not tied)
        config = paper(objective={"softmax": "sampled" if sampled else "full"}, optim={"clip_norm": clip_norm})
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
        return {entry.published: to_published(entry, tensors[entry.ours]) for entry in table(self.shape)}

    def sums(self) -> dict[str, np.ndarray]:
        state = self.trainer.optimizer.state
        named = dict(self.trainer.model.named_parameters())
        return {e.published: to_published(e, state[named[e.ours]]["sum"]) for e in table(self.shape)}


@pytest.mark.parametrize("clip_norm", [10.0, 0.05])  # one that lets the gradient through, one that binds
@pytest.mark.parametrize("case", CASES)
def test_steps_in_a_row_are_the_oracles(case: str, clip_norm: float) -> None:
    """Three steps with carried states; float32 against float64, weights of about 1, so 1e-5 is rounding."""
    ours = Case(clip_norm, **CASES[case])
    states = None
    for number in range(3):
        batch = ours.batch()
        wanted = ours.oracle_step(batch, number, states)
        found = ours.trainer.step(batch, number)
        losses = [found.forward, found.backward][: ours.num_directions]
        np.testing.assert_allclose(losses, wanted.losses, atol=1e-5)
        assert found.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-4)
        assert (wanted.grad_norm > clip_norm) == (clip_norm < 1)
        for name, array in ours.arrays().items():
            np.testing.assert_allclose(array, wanted.weights[name], atol=1e-5, err_msg=name)
        for name, array in ours.sums().items():
            np.testing.assert_allclose(array, wanted.accumulators[name], atol=2e-4, rtol=1e-5, err_msg=name)
        states = wanted.states
        for d in range(ours.num_directions):
            for layer, (h, c) in enumerate(states[d]):
                np.testing.assert_allclose(ours.trainer.state.h[d, layer].numpy(), h, atol=1e-5)
                np.testing.assert_allclose(ours.trainer.state.c[d, layer].numpy(), c, atol=1e-5)


def test_a_reset_inside_a_row_is_a_fresh_start_there() -> None:
    """Row by row, cut where it is reset: the pieces from a zero state give the same mean loss and last state."""
    case = Case(**CASES["words, sampled, skips"])
    trainer, model = case.trainer, case.trainer.model
    trainer.state = type(trainer.state)(torch.randn_like(trainer.state.h), torch.randn_like(trainer.state.c))
    batch = case.batch(resets=True)
    assert batch.forward.resets[:, 1:].any()
    inputs = trainer._input_builder.build(batch, slice(0, B), [])
    losses, after = trainer.losses(inputs, trainer.state)
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
                wanted = torch.from_numpy(direction.targets[row, begin:end]).long()
                total -= model.head.log_probs(layers[-1][0], wanted).sum().item()
            torch.testing.assert_close(after.h[d, :, row], state.h[:, 0].detach())
            torch.testing.assert_close(after.c[d, :, row], state.c[:, 0].detach())
        assert losses[d].item() == pytest.approx(total / (B * T), abs=1e-5)


def test_a_step_with_a_reset_at_every_row_start_forgets_the_state() -> None:
    first, second = (Case(**CASES["words, full"]) for _ in range(2))
    batch = first.batch()
    starts = np.zeros((B, T), dtype=bool)
    starts[:, 0] = True
    fresh = LMBatch(replace(batch.forward, resets=starts), replace(batch.backward, resets=starts))
    first.trainer.state = type(first.trainer.state)(*(torch.randn_like(x) for x in first.trainer.state))
    assert first.trainer.step(fresh, 0) == second.trainer.step(batch, 0)


def tiny(**changes: Any) -> Trainer:
    """A character model of 50 words with 8 rows of 6 steps."""
    shape = BiLMConfig(
        chars=CharConfig(filters=((1, 4), (2, 8)), char_dim=4, max_chars=6, num_highways=1),
        lstm=LSTMConfig(cell_dim=12, proj_dim=8),
        head=HeadConfig(vocab_size=50),
    )
    torch.manual_seed(1)
    rows = torch.randint(1, 200, (60, 6), dtype=torch.int32)
    objective = {"softmax": "sampled", "num_samples": 20} | changes.pop("objective", {})
    return Trainer(BiLM(shape), rows, paper(8, 6, objective=objective, **changes))


def tiny_batch(seed: int) -> LMBatch:
    rng = np.random.default_rng(seed)

    def direction() -> Direction:
        inputs, targets = rng.integers(60, size=(8, 6)), rng.integers(50, size=(8, 6))
        return Direction(inputs.astype(np.int32), targets.astype(np.int32), rng.random((8, 6)) < 0.2, None)

    return LMBatch(direction(), direction())


@pytest.mark.parametrize("accumulate", [2, 8])
def test_accumulated_parts_are_one_batch(accumulate: int) -> None:
    whole, parts = tiny(), tiny(train={"accumulate": accumulate})
    for number in range(4):
        a, b = whole.step(tiny_batch(number), number), parts.step(tiny_batch(number), number)
        assert (a.forward, a.backward) == pytest.approx((b.forward, b.backward), abs=1e-5)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(whole.state.h, parts.state.h, atol=1e-5, rtol=1e-4)


def test_sparse_softmax_steps_are_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = tiny()
    monkeypatch.setattr(step_module, "MIN_SPARSE_VOCAB", 1)
    sparse = tiny()
    for number in range(4):
        a, b = dense.step(tiny_batch(number), number), sparse.step(tiny_batch(number), number)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)
    assert sparse.model.head.weight.grad.is_sparse
    for a, b in zip(dense.model.parameters(), sparse.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_bfloat16_learns_and_stays_close() -> None:
    exact, rough = tiny(), tiny(train={"precision": "bfloat16"})
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
def test_a_step_that_is_not_finite_changes_nothing(bad: float) -> None:
    trainer = tiny()
    trainer.step(tiny_batch(0), 0)
    with torch.no_grad():
        kept = trainer.model.head.bias[7].item()
        trainer.model.head.bias[7] = bad
    before = [p.detach().clone() for p in trainer.model.parameters()]
    sums = [value["sum"].clone() for value in trainer.optimizer.state.values()]
    state = [tensor.clone() for tensor in trainer.state]
    found = trainer.step(tiny_batch(1), 1)
    assert found.skipped
    for a, b in zip(before, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=0, atol=0, equal_nan=True)
    assert all(torch.equal(a, b["sum"]) for a, b in zip(sums, trainer.optimizer.state.values(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(state, trainer.state, strict=True))
    with torch.no_grad():
        trainer.model.head.bias[7] = kept
    assert not trainer.step(tiny_batch(2), 2).skipped


def test_chance_of_a_step_is_its_number_alone() -> None:
    """Dropout and negatives of step 3 are the same whatever came before; those of step 4 are others."""
    first, second, third = (tiny(objective={"dropout": 0.3}) for _ in range(3))
    torch.manual_seed(99)
    torch.rand(7)
    a, b, c = first.step(tiny_batch(0), 3), second.step(tiny_batch(0), 3), third.step(tiny_batch(0), 4)
    assert a == b
    assert a.forward != c.forward


def test_word_table_of_one_direction_reports_its_one_loss() -> None:
    shape = BiLMConfig(
        chars=None,
        words=WordConfig(num_words=V, word_dim=4),
        lstm=LSTMConfig(cell_dim=8, proj_dim=4),
        bidirectional=False,
        head=HeadConfig(vocab_size=V),
    )
    trainer = Trainer(BiLM(shape), torch.arange(1, V + 1, dtype=torch.int32)[:, None], paper())
    found = trainer.step(Case(**CASES["words, full"]).batch(), 0)
    assert found.forward == found.backward
