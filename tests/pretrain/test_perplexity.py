"""Held-out perplexity against sentences scored one by one, and against running text read in one go."""

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
    """Text with held-out sentences, of which some words are not in the vocabulary, and a random model."""
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


def test_reset_is_each_sentence_by_itself(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
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
    found = Evaluator(model, rows).reset(data)
    assert found.predictions == count == data.heldout.num_positions
    assert found.forward == pytest.approx(math.exp(totals[0] / count), rel=1e-4)
    assert found.backward == pytest.approx(math.exp(totals[1] / count), rel=1e-4)
    assert found.mean == pytest.approx(math.sqrt(found.forward * found.backward))


def test_carried_is_running_text(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
    """So little text is one row: sentence after sentence, the state never zeroed, whole batches of 20 counted."""
    data, model, rows = case
    losses: list[float] = []
    state = State(model.zero_state(1).h[0], model.zero_state(1).c[0])
    with torch.inference_mode():
        for ids in sentences(data):
            x = model.token_encoder(rows[torch.from_numpy(ids[:-1])].int())[None]
            layers, state = model.stacks[0](x, None, state)
            losses += (-model.head.log_probs(layers[-1][0], targets_of(data, ids[1:]))).tolist()
    whole = len(losses) // 20 * 20
    found = Evaluator(model, rows).carried(data)
    assert found.predictions == whole < len(losses)
    assert found.forward == pytest.approx(math.exp(sum(losses[:whole]) / whole), rel=1e-4)


def test_fewer_words_are_a_sample_of_the_whole(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
    data, model, rows = case
    evaluator = Evaluator(model, rows)
    for measure in (evaluator.reset, evaluator.carried):
        some, everything = measure(data, max_words=60), measure(data)
        assert 0 < some.predictions < everything.predictions
        assert some.mean == pytest.approx(everything.mean, rel=0.5)
    assert model.training is False


def test_a_model_gone_wrong_has_a_huge_but_finite_perplexity(case: tuple[PreparedData, BiLM, torch.Tensor]) -> None:
    data, model, rows = case
    wild = BiLM(model.config)
    wild.load_state_dict(model.state_dict())
    with torch.no_grad():
        wild.head.bias += torch.arange(len(wild.head.bias)) * 1e4
    assert math.isfinite(Evaluator(wild, rows).reset(data).mean)
