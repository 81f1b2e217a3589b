"""Held-out perplexity compared with sentences scored one by one and with continuous text read without batches."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tiny_run import settings, write_text

from elmo.model.bilm import BiLM
from elmo.model.config import HeadConfig
from elmo.model.lstm import State
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepared import PreparedData
from elmo.pretrain.train.perplexity import Evaluator
from elmo.pretrain.train.type_inputs import input_rows


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[PreparedData, BiLM, torch.Tensor]:
    """Held-out sentences with some words outside the vocabulary, a random model, and the ids of each word type."""
    folder = tmp_path_factory.mktemp("perplexity")
    changes = {"data": {"heldout": 0.3, "max_vocab": 40}}
    config = settings(write_text(folder / "text.txt", 100), changes)
    data = prepare(replace(config.data, max_chars=10), folder / "data", num_workers=1)
    torch.manual_seed(0)
    model = BiLM(replace(config.model, head=HeadConfig(vocab_size=data.vocab_size)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return data, model.eval(), input_rows(data, model.config)


def sentences(data: PreparedData) -> list[np.ndarray]:
    tokens, offsets = data.heldout.shard(0)
    return [np.array([data.bos, *tokens[a:b], data.eos]) for a, b in pairwise(offsets)]


def targets_of(data: PreparedData, ids: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.where(ids < data.vocab_size, ids, data.unk)).long()


def test_reset_scores_each_sentence_from_a_zero_state(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
    data, model, rows = case
    totals, count, unknown = [0.0, 0.0], 0, 0
    with torch.inference_mode():
        for ids in sentences(data):
            top = model(rows[torch.from_numpy(ids)][None].int()).layers[-1][0]  # (T, D)
            words, half = targets_of(data, ids), top.shape[1] // 2
            totals[0] -= float(model.head.log_probs(top[:-1, :half], words[1:]).sum())
            totals[1] -= float(model.head.log_probs(top[1:, half:], words[:-1]).sum())
            count += len(ids) - 1
            unknown += int((words == data.unk).sum())
    assert unknown > 0
    perplexity = Evaluator(model, rows).reset(data)
    assert perplexity.predictions == count == data.heldout.num_positions
    assert perplexity.forward == pytest.approx(math.exp(totals[0] / count), rel=1e-4)
    assert perplexity.backward == pytest.approx(math.exp(totals[1] / count), rel=1e-4)
    assert perplexity.mean == pytest.approx(math.sqrt(perplexity.forward * perplexity.backward))


def test_carried_scores_continuous_text(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
    """This little text is one row: the state is never zeroed, and only complete batches of 20 tokens count."""
    data, model, rows = case
    losses: list[float] = []
    state = State(model.zero_state(1).h[0], model.zero_state(1).c[0])
    with torch.inference_mode():
        for ids in sentences(data):
            x = model.token_encoder(rows[torch.from_numpy(ids[:-1])].int())[None]
            layers, state = model.stacks[0](x, None, state)
            losses += (-model.head.log_probs(layers[-1][0], targets_of(data, ids[1:]))).tolist()
    count = len(losses) // 20 * 20
    perplexity = Evaluator(model, rows).carried(data)
    assert perplexity.predictions == count < len(losses)
    assert perplexity.forward == pytest.approx(math.exp(sum(losses[:count]) / count), rel=1e-4)


def test_max_words_measures_a_sample_of_the_text(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
    data, model, rows = case
    evaluator = Evaluator(model, rows)
    for measure in (evaluator.reset, evaluator.carried):
        sample, full = measure(data, max_words=60), measure(data)
        assert 0 < sample.predictions < full.predictions
        assert sample.mean == pytest.approx(full.mean, rel=0.5)
    assert model.training is False


def test_diverged_model_has_a_finite_perplexity(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
    data, model, rows = case
    diverged = BiLM(model.config)
    diverged.load_state_dict(model.state_dict())
    with torch.no_grad():
        diverged.head.bias += torch.arange(len(diverged.head.bias)) * 1e4
    assert math.isfinite(Evaluator(diverged, rows).reset(data).mean)
