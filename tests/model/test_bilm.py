"""The network against the published vectors and the independent oracle."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import hypothesis
import hypothesis.strategies as st
import numpy as np
import oracle
import pytest
import torch
from golden import GOLDEN, SENTENCES, golden_batches, golden_model, random_bilm

from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS, HeadConfig, LSTMConfig, WordConfig, num_parameters
from elmo.model.lstm import State
from elmo.model.token_encoder import CharCNN
from elmo.text.batch import make_batch
from elmo.text.indexer import ByteIndexer


def run(model: BiLM, sentences: list[list[str]], state: State | None = None):
    batch = make_batch(sentences, ByteIndexer(model.config.chars.max_chars))
    with torch.no_grad():
        return model(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask), state)


@pytest.mark.parametrize("kind", GOLDEN)
def test_carried_state_gives_the_published_vectors(kind: str) -> None:
    model, state, largest = golden_model(kind), None, 0.0
    for sentences, expected in golden_batches(kind):
        out = run(model, sentences, state)
        state = out.state
        for row, vectors in enumerate(expected):
            largest = max(largest, float(np.abs(out.layers[-1, row, 1 : len(vectors) + 1].numpy() - vectors).max()))
    assert largest < 2e-6  # float32 rounding of two implementations; the mistakes below give more than 1e-4


@pytest.mark.parametrize("kind", GOLDEN)
def test_reset_state_gives_the_published_vectors_of_the_first_batch_only(kind: str) -> None:
    model = golden_model(kind)
    for number, (sentences, expected) in enumerate(golden_batches(kind)):
        out = run(model, sentences)
        difference = max(
            float(np.abs(out.layers[-1, row, 1 : len(e) + 1].numpy() - e).max()) for row, e in enumerate(expected)
        )
        assert difference < 2e-6 if number == 0 else difference > 1e-2


@hypothesis.settings(max_examples=40)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 4))
def test_random_models_agree_with_the_oracle(seed: int, layers: int) -> None:
    options, weights, model = random_bilm(seed, char_input=True, n_layers=layers)
    batches = [SENTENCES[:3], SENTENCES[2:]]
    expected_state, state = None, None
    for sentences in batches:
        expected, expected_state = oracle.run(options, weights, sentences, expected_state)
        initial = None if state is None else State(state.h[:, :, : len(sentences)], state.c[:, :, : len(sentences)])
        out = run(model, sentences, initial)
        for row, sentence in enumerate(sentences):
            # float32 against float64; the oracle in float32 differs from itself by at most 2.6e-6
            np.testing.assert_allclose(out.layers[:, row, : len(sentence) + 2].numpy(), expected[row], atol=1e-5)
        state = out.state


@hypothesis.settings(max_examples=15)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), both=st.booleans())
def test_word_level_and_one_directional_models_agree_with_the_oracle(seed: int, both: bool) -> None:
    options, weights, model = random_bilm(seed, char_input=False, bidirectional=both, vocab_size=9)
    vocab = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", ".", "a", "on"]
    tokens = ["the", "unknown", "cat", "sat", "."]
    expected, _ = oracle.run(options, weights, [tokens], vocab=vocab)
    ids = oracle.input_ids(options, tokens, vocab)
    with torch.no_grad():
        out = model(torch.tensor(np.asarray(ids))[None, :, None])
    np.testing.assert_allclose(out.layers[:, 0].numpy(), expected[0], atol=1e-5)


def _gate_order(model: BiLM) -> None:
    for layer in model.modules():
        if hasattr(layer, "kernel"):
            i, j, f, o = layer.kernel.data.chunk(4, dim=1)
            layer.kernel.data = torch.cat([i, f, j, o], dim=1)


def _no_forget_bias(model: BiLM) -> None:
    for layer in model.modules():
        if hasattr(layer, "forget_bias"):
            layer.forget_bias = 0.0


def _no_clip(model: BiLM) -> None:
    for layer in model.modules():
        if hasattr(layer, "cell_clip"):
            layer.cell_clip = layer.proj_clip = None


def _inverted_highway(model: BiLM) -> None:
    for highway in model.token_encoder.chars.highways:
        highway.carry.weight.data.neg_()
        highway.carry.bias.data.neg_()


def _skip(model: BiLM) -> None:
    for stack in model.stacks:
        stack.skip = not stack.skip


@pytest.mark.parametrize("kind", GOLDEN)
@pytest.mark.parametrize("mistake", [_gate_order, _no_forget_bias, _no_clip, _inverted_highway, _skip])
def test_a_mistake_changes_the_vectors(kind: str, mistake) -> None:
    model = golden_model(kind)
    mistake(model)
    sentences, expected = next(golden_batches(kind))
    out = run(model, sentences)
    assert (
        max(float(np.abs(out.layers[-1, r, 1 : len(e) + 1].numpy() - e).max()) for r, e in enumerate(expected)) > 1e-4
    )


def test_padding_and_row_order_do_not_matter() -> None:
    model = golden_model("allennlp")
    together = run(model, SENTENCES)
    backwards = run(model, SENTENCES[::-1])
    for row, sentence in enumerate(SENTENCES):
        n = len(sentence) + 2
        alone = run(model, [sentence]).layers[:, 0]
        torch.testing.assert_close(together.layers[:, row, :n], alone, atol=1e-6, rtol=0)
        torch.testing.assert_close(backwards.layers[:, len(SENTENCES) - 1 - row, :n], alone, atol=1e-6, rtol=0)
        assert not together.layers[:, row, n:].any()


def test_two_halves_with_carried_state_equal_one_stream() -> None:
    model = golden_model("allennlp")
    tokens = model.token_encoder(torch.from_numpy(make_batch(SENTENCES[:1], ByteIndexer()).ids)[0])[None]  # (1, T, P)
    stack, zero = model.stacks[0], model.zero_state(1)
    complete, end = stack(tokens, None, State(zero.h[0], zero.c[0]))
    first, middle = stack(tokens[:, :4], None, State(zero.h[0], zero.c[0]))
    second, after = stack(tokens[:, 4:], None, middle)
    torch.testing.assert_close(torch.cat([first, second], dim=2), complete, atol=1e-6, rtol=0)
    torch.testing.assert_close(after.h, end.h, atol=1e-6, rtol=0)
    torch.testing.assert_close(after.c, end.c, atol=1e-6, rtol=0)


def test_a_fully_masked_row_keeps_its_state_and_outputs_zeros() -> None:
    model = golden_model("allennlp")
    batch = make_batch([SENTENCES[0], []], ByteIndexer())
    mask = torch.from_numpy(batch.mask).clone()
    mask[1] = False
    start = State(*(torch.randn_like(part) for part in model.zero_state(2)))
    with torch.no_grad():
        out = model(torch.from_numpy(batch.ids), mask, start)
    assert not out.layers[:, 1].any()
    torch.testing.assert_close(out.state.h[:, :, 1], start.h[:, :, 1])
    torch.testing.assert_close(out.state.c[:, :, 1], start.c[:, :, 1])


def test_convolving_only_the_used_columns_changes_nothing(monkeypatch) -> None:
    chars = golden_model("allennlp").token_encoder.chars
    words = ["a", "bcd", "e" * 47, "f" * 80, ""]
    rows = torch.from_numpy(np.stack([ByteIndexer().row(word) for word in words]))
    with torch.no_grad():
        alone = torch.cat([chars(rows[n : n + 1]) for n in range(len(words))])  # each cut to its own length
        assert chars._used_columns(rows[:1]).shape[1] < 10
        monkeypatch.setattr(CharCNN, "_used_columns", lambda self, ids: ids)
        all_columns = torch.cat([chars(rows[n : n + 1]) for n in range(len(words))])
    torch.testing.assert_close(alone, all_columns, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "parameters"), [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)]
)
def test_presets_have_the_published_sizes(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = BiLM(PRESETS[name])
    assert sum(p.numel() for p in model.parameters()) == num_parameters(PRESETS[name]) == parameters


@pytest.mark.parametrize(
    "head",
    [
        HeadConfig(vocab_size=700),
        HeadConfig(vocab_size=700, kind="adaptive", cutoffs=(100,)),
        HeadConfig(vocab_size=700, kind="adaptive", cutoffs=(100, 300, 301)),
    ],
    ids=str,
)
def test_parameters_of_a_softmax_are_counted_from_its_config(head: HeadConfig) -> None:
    config = replace(PRESETS["tiny"], head=head)
    assert sum(p.numel() for p in BiLM(config).parameters()) == num_parameters(config, head=True)


def test_parameters_of_a_tied_softmax_are_its_biases_and_the_word_table() -> None:
    tied = replace(
        PRESETS["tiny"],
        chars=None,
        words=WordConfig(num_words=9, word_dim=128),
        head=HeadConfig(vocab_size=9, tied=True),
    )
    assert sum(p.numel() for p in BiLM(tied).parameters()) == num_parameters(tied, head=True)
    assert num_parameters(tied, head=True) == num_parameters(tied) + 9


def test_adaptive_softmax_whose_last_cluster_would_have_no_columns_is_refused() -> None:
    head = HeadConfig(vocab_size=700, kind="adaptive", cutoffs=(100, 300))
    with pytest.raises(ConfigError, match="2 clusters needs hidden states at least 16 wide"):
        replace(PRESETS["tiny"], lstm=LSTMConfig(cell_dim=20, proj_dim=15), head=head)


def test_copies_and_pickles_give_the_same_vectors() -> None:
    model = golden_model("allennlp")
    expected = run(model, SENTENCES).layers
    for duplicate in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(run(duplicate, SENTENCES).layers, expected)
    reloaded = BiLM(model.config)
    reloaded.load_state_dict(model.state_dict())
    assert torch.equal(run(reloaded.eval(), SENTENCES).layers, expected)


def test_gradients_reach_every_parameter() -> None:
    model = BiLM(PRESETS["tiny"])
    batch = make_batch(SENTENCES, ByteIndexer())
    model(torch.from_numpy(batch.ids)).layers.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
