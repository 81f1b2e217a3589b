"""AllenNLP's tests of its ELMo, with the import changed; each test names the upstream test that it mirrors."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from golden import FIXTURES, golden_batches
from torch import nn

from elmo.compat.allennlp import (
    Elmo,
    ElmoEmbedder,
    ELMoTokenCharactersIndexer,
    ElmoTokenEmbedder,
    ScalarMix,
    _ElmoBiLm,
    batch_to_ids,
)
from elmo.errors import ConfigError, DataError
from elmo.model.config import LSTMConfig
from elmo.model.head import SoftmaxHead
from elmo.model.lstm import LSTMStack, ProjectedLSTM, State
from elmo.model.token_encoder import Highway
from elmo.pretrain.train.objective import full_softmax_loss, sampled_softmax_loss
from elmo.pretrain.train.sampler import Sample, draw

OPTIONS, WEIGHTS = (str(FIXTURES / "allennlp" / name) for name in ("options.json", "lm_weights.hdf5"))
PAD = 261


class Vocabulary:
    """The part of AllenNLP's Vocabulary that an embedder uses: the first two entries are padding and unknown."""

    def __init__(self, sentences: list[list[str]]) -> None:
        words = dict.fromkeys(word for sentence in sentences for word in sentence)
        self.numbers = {word: n for n, word in enumerate(["@@PADDING@@", "@@UNKNOWN@@", *words])}

    def get_token_to_index_vocabulary(self, namespace: str) -> dict[str, int]:
        assert namespace == "tokens"
        return self.numbers

    def ids(self, sentences: list[list[str]]) -> torch.Tensor:
        width = max(map(len, sentences))
        return torch.tensor([[*(self.numbers[w] for w in s), *[0] * (width - len(s))] for s in sentences])


def padded(*ids: int) -> list[int]:
    return [*ids, *[PAD] * (50 - len(ids))]


# ---- tests/data/token_indexers/elmo_indexer_test.py ----


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("<S>", padded(259, 257, 260)),
        ("</S>", padded(259, 258, 260)),
        (chr(256) + "t", padded(259, 197, 129, 117, 260)),
    ],
)
def test_char_ids(token: str, expected: list[int]) -> None:
    """test_bos_to_char_ids, test_eos_to_char_ids, test_unicode_to_char_ids"""
    indexer = ELMoTokenCharactersIndexer()
    assert indexer.tokens_to_indices([SimpleNamespace(text=token)], None) == {"elmo_tokens": [expected]}
    assert indexer.tokens_to_indices([token], None, "character_ids") == {"character_ids": [expected]}  # as in 0.9


def test_indexer_pads_a_token_sequence() -> None:
    """test_elmo_as_array_produces_token_sequence"""
    indexer = ELMoTokenCharactersIndexer()
    indices = indexer.tokens_to_indices(["Second", "."])
    expected = [padded(259, 84, 102, 100, 112, 111, 101, 260), padded(259, 47, 260), [0] * 50]
    assert indexer.as_padded_tensor_dict(indices, {"elmo_tokens": 3})["elmo_tokens"].tolist() == expected
    assert indexer.as_padded_tensor(indices, {"elmo_tokens": 3}, {})["elmo_tokens"].tolist() == expected  # as in 0.9


def test_indexer_with_additional_tokens() -> None:
    """test_elmo_indexer_with_additional_tokens"""
    indexer = ELMoTokenCharactersIndexer(tokens_to_add={"<first>": 1})
    assert indexer.tokens_to_indices(["<first>"])["elmo_tokens"] == [padded(259, 2, 260)]
    with pytest.raises(ConfigError, match="261"):
        ELMoTokenCharactersIndexer(tokens_to_add={"<first>": 261})


def test_empty_token_list() -> None:
    """test_elmo_empty_token_list"""
    indexer = ELMoTokenCharactersIndexer()
    assert indexer.get_empty_token_list() == {"elmo_tokens": []}
    tensors = indexer.as_padded_tensor_dict(indexer.get_empty_token_list(), {"elmo_tokens": 1})
    assert tensors["elmo_tokens"].tolist() == [[0] * 50]


# ---- tests/modules/elmo_test.py ----


def test_elmo_bilm() -> None:
    """TestElmoBiLm.test_elmo_bilm"""
    bilm = _ElmoBiLm(OPTIONS, WEIGHTS)
    for sentences, expected in golden_batches("allennlp"):
        with torch.no_grad():
            output = bilm(batch_to_ids(sentences))
        assert (output["mask"].sum(1) - 2).tolist() == [len(s) for s in sentences]
        for row, vectors in enumerate(expected):
            found = output["activations"][2][row, 1 : len(vectors) + 1].numpy()
            np.testing.assert_allclose(found, vectors, atol=2e-6)  # upstream: atol 1e-6 and rtol 1e-5


def test_cache_of_words_gives_the_same_layers() -> None:
    """TestElmoBiLm.test_elmo_bilm_can_cache_char_cnn_embeddings"""
    sentences = [["This", "is", "a", "sentence"], ["Here", "'s", "one"], ["Another", "one"]]
    vocab = Vocabulary(sentences)
    plain, cached = _ElmoBiLm(OPTIONS, WEIGHTS), _ElmoBiLm(OPTIONS, WEIGHTS, vocab_to_cache=list(vocab.numbers))
    expected, found = plain(batch_to_ids(sentences)), cached(batch_to_ids(sentences), vocab.ids(sentences))
    assert torch.equal(expected["mask"], found["mask"])
    for a, b in zip(expected["activations"], found["activations"], strict=True):
        torch.testing.assert_close(b, a, atol=1.5e-6, rtol=0)


def test_words_outside_the_cache_do_not_raise() -> None:
    """TestElmoBiLm.test_elmo_char_cnn_cache_does_not_raise_error_for_uncached_words"""
    known, others = [["here", "is"], ["a", "vocab"]], [["This", "is", "OOV"], ["so", "is", "this"]]
    bilm = _ElmoBiLm(OPTIONS, WEIGHTS, vocab_to_cache=list(Vocabulary(known).numbers))
    bilm(batch_to_ids(known), Vocabulary(known).ids(known))
    bilm(batch_to_ids(others), Vocabulary(others).ids(others))


SENTENCES = [["The", "sentence", "."], ["ELMo", "helps", "disambiguate", "ELMo", "from", "Elmo", "."]]


@pytest.mark.parametrize("keep", [False, True])
def test_elmo(keep: bool) -> None:
    """TestElmo.test_elmo, TestElmo.test_elmo_keep_sentence_boundaries"""
    output = Elmo(OPTIONS, WEIGHTS, 2, dropout=0.0, keep_sentence_boundaries=keep)(batch_to_ids(SENTENCES))
    length = 7 + (2 if keep else 0)
    assert [tuple(v.shape) for v in output["elmo_representations"]] == [(2, length, 32)] * 2
    assert output["mask"].shape == (2, length)


def test_elmo_of_4d_input() -> None:
    """TestElmo.test_elmo_4D_input"""
    elmo = Elmo(OPTIONS, WEIGHTS, 2, dropout=0.0)
    batches = [SENTENCES, [["1", "2"], list("1234567")], [["1", "2", "3", "4", "50", "60", "70"], ["The"]]]
    ids = [batch_to_ids(batch) for batch in batches]
    together = elmo(torch.stack(ids, dim=1))["elmo_representations"][0]  # (2, 3, 7, 32)
    for k, one in enumerate(ids):
        elmo._elmo_lstm._elmo_lstm.reset_states()
        torch.testing.assert_close(together[:, k], elmo(one)["elmo_representations"][0], atol=1e-6, rtol=0)


def test_elmo_with_module() -> None:
    """TestElmo.test_elmo_with_module"""
    elmo = Elmo(None, None, 2, dropout=0.0, module=_ElmoBiLm(OPTIONS, WEIGHTS))
    output = elmo(batch_to_ids(SENTENCES))["elmo_representations"]
    assert [tuple(v.shape) for v in output] == [(2, 7, 32)] * 2


def test_higher_dimensional_input_with_cache() -> None:
    """TestElmo.test_elmo_bilm_can_handle_higher_dimensional_input_with_cache"""
    sentences = [["This", "is", "a", "sentence"], ["Here", "'s", "one"], ["Another", "one"]]
    vocab = Vocabulary(sentences)
    chars, words = batch_to_ids(sentences), vocab.ids(sentences)
    first, second = (Elmo(OPTIONS, WEIGHTS, 1, vocab_to_cache=list(vocab.numbers)).eval() for _ in range(2))
    expected = first(chars, words)["elmo_representations"][0]
    found = second(torch.stack([chars] * 4, dim=1), torch.stack([words] * 4, dim=1))["elmo_representations"][0]
    for k in range(4):
        torch.testing.assert_close(found[:, k], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_requires_grad(requires_grad: bool) -> None:
    """TestElmoRequiresGrad"""
    embedder = ElmoTokenEmbedder(OPTIONS, WEIGHTS, requires_grad=requires_grad)
    embedder(torch.randint(0, 262, (3, 4, 50))).sum().backward()
    grads = [p.grad for name, p in embedder.named_parameters() if "_elmo_lstm" in name]
    assert grads
    assert all((grad is not None) == requires_grad for grad in grads)


def test_token_vectors_of_boundaries() -> None:
    """TestElmoTokenRepresentation.test_elmo_token_representation_bos_eos"""
    bilm = _ElmoBiLm(OPTIONS, WEIGHTS)
    for position, token in ((0, "<S>"), (2, "</S>")):
        layer = bilm(batch_to_ids([[token]]))["activations"][0][0]
        torch.testing.assert_close(layer[position], layer[1])


# ---- tests/modules/token_embedders/elmo_token_embedder_test.py ----


class Params(dict):
    """AllenNLP's Params, which is a mapping."""


@pytest.mark.parametrize("style", ["2.x", "0.9", "positional"])
def test_forward_works_with_projection_layer(style: str) -> None:
    """TestElmoTokenEmbedder.test_forward_works_with_projection_layer; it was a TypeError"""
    params = Params(options_file=Path(OPTIONS), weight_file=Path(WEIGHTS), projection_dim=20)
    embedder = {
        "2.x": lambda: ElmoTokenEmbedder.from_params(vocab=None, params=params),
        "0.9": lambda: ElmoTokenEmbedder.from_params(None, params),
        "positional": lambda: ElmoTokenEmbedder.from_params(params),
    }[style]()
    assert embedder.get_output_dim() == 20
    word1, word2 = [6, 5, 4, 3, *[0] * 46], [3, 2, 1, *[0] * 47]
    assert embedder(torch.tensor([[word1, word2]])).shape == (1, 2, 20)
    assert embedder(torch.tensor([[[word1]]])).shape == (1, 1, 1, 20)


def test_namespace_to_cache_takes_the_words_of_the_vocabulary() -> None:
    """ElmoTokenEmbedder.from_params of 0.9 with "namespace_to_cache"; it was a TypeError"""
    sentences = [["Here", "is", "one"]]
    vocab = Vocabulary(sentences)
    params = {"options_file": OPTIONS, "weight_file": WEIGHTS, "namespace_to_cache": "tokens", "dropout": 0.0}
    cached = ElmoTokenEmbedder.from_params(vocab=vocab, params=params)
    plain = ElmoTokenEmbedder(OPTIONS, WEIGHTS, dropout=0.0)
    expected = plain(batch_to_ids(sentences))
    torch.testing.assert_close(cached(batch_to_ids(sentences), vocab.ids(sentences)), expected, atol=1e-6, rtol=0)
    with pytest.raises(ConfigError, match="no vocabulary"):
        ElmoTokenEmbedder.from_params(params=params)


# ---- tests/modules: scalar_mix_test.py, stacked_elmo_lstm_test.py, lstm_cell_with_projection_test.py ... ----


def test_scalar_mix() -> None:
    """TestScalarMix.test_scalar_mix_can_run_forward and its two error cases"""
    mix, layers = ScalarMix(3), [torch.randn(3, 4, 5) for _ in range(3)]
    for k in range(3):
        mix.scalar_parameters[k].data[0] = 0.1 * (k + 1)
    mix.gamma.data[0] = 0.5
    weights = np.exp([0.1, 0.2, 0.3]) / np.exp([0.1, 0.2, 0.3]).sum()
    expected = 0.5 * sum(weight * layer.numpy() for weight, layer in zip(weights, layers, strict=True))
    np.testing.assert_allclose(mix(layers).detach().numpy(), expected, atol=1e-6)
    with pytest.raises(ConfigError):
        mix(layers + layers[:2])
    with pytest.raises(ConfigError):
        ScalarMix(3, initial_scalar_parameters=[0.0, 0.0])


def test_scalar_mix_with_initial_parameters() -> None:
    """TestScalarMix.test_scalar_mix_trainable_with_initial_scalar_parameters"""
    mix = ScalarMix(3, initial_scalar_parameters=[1.0, 2.0, 3.0], trainable=False)
    assert [p.item() for p in mix.scalar_parameters] == [1.0, 2.0, 3.0]
    assert not any(p.requires_grad for p in mix.parameters())


def test_scalar_mix_layer_norm() -> None:
    """TestScalarMix.test_scalar_mix_layer_norm"""
    mix, layers = ScalarMix(3, do_layer_norm=True), [torch.randn(3, 4, 5) for _ in range(3)]
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 2:] = False
    weights = [0.1, 0.2, 0.3]
    for k in range(3):
        mix.scalar_parameters[k].data[0] = weights[k]
    mix.gamma.data[0] = 0.5
    expected = np.zeros((3, 4, 5))
    for weight, layer in zip(np.exp(weights) / np.exp(weights).sum(), layers, strict=True):
        valid = layer.numpy()[mask.numpy()]
        expected += 0.5 * weight * (layer.numpy() - valid.mean()) / (valid.std() + 1e-12)
    np.testing.assert_allclose(mix(layers, mask).detach().numpy(), expected, atol=1.5e-6)


MASK = torch.tensor([[True] * 5, [True] * 4 + [False], [True] * 2 + [False] * 3, [True] + [False] * 4])


def test_elmo_lstm() -> None:
    """TestElmoLstmCell.test_elmo_lstm; the input is as wide as the output, because ours has no other case"""
    config = LSTMConfig(num_layers=2, proj_dim=5, cell_dim=7, cell_clip=2, proj_clip=1)
    stack = LSTMStack(config)
    state = State(torch.zeros(2, 4, 5), torch.zeros(2, 4, 7))
    layers, after = stack(torch.rand(4, 5, 5) * MASK[..., None], MASK, state)
    assert not layers[:, ~MASK].any()
    assert (after.h.shape, after.c.shape) == ((2, 4, 5), (2, 4, 7))


def test_lstm_cell_is_masked_and_clipped() -> None:
    """TestLstmCellWithProjection.test_elmo_lstm_cell_completes_forward_pass"""
    torch.manual_seed(1)
    cell = ProjectedLSTM(LSTMConfig(proj_dim=5, cell_dim=7, cell_clip=2, proj_clip=1))
    with torch.no_grad():
        cell.kernel.mul_(20)  # so that clips take effect
        outputs, after = cell(torch.rand(4, 5, 5), MASK, State(torch.ones(4, 5), torch.ones(4, 7)))
    assert not outputs[~MASK].any()
    assert outputs.abs().max() <= 1
    assert after.c.abs().max() == 2


def test_highway_by_hand() -> None:
    """TestHighway.test_forward_works_on_simple_input; the gate is stored with the opposite sign"""
    highways = [Highway(2), Highway(2)]
    for highway, weight, bias in zip(highways, (1.0, 2.0), (0.0, -2.0), strict=True):
        nn.init.constant_(highway.transform.weight, weight)
        nn.init.constant_(highway.transform.bias, bias)
        nn.init.constant_(highway.carry.weight, -weight)
        nn.init.constant_(highway.carry.bias, -bias)
    with torch.no_grad():
        result = highways[1](highways[0](torch.tensor([[-2.0, 1.0], [3.0, -2.0]])))
    np.testing.assert_allclose(result.numpy(), [[-0.0394, 0.0197], [1.7527, -0.5550]], atol=1e-4)


def test_states_of_rows() -> None:
    """TestEncoderBase: _get_initial_states, _update_states and reset_states with a mask"""
    bilm = _ElmoBiLm(OPTIONS, WEIGHTS)
    states = bilm._elmo_lstm
    bilm(batch_to_ids([["a"], ["b"], ["c"]]))
    first = [state.clone() for state in states._states]
    bilm(batch_to_ids([["d"]]))  # fewer rows: the others keep their state
    for old, new in zip(first, states._states, strict=True):
        assert torch.equal(old[:, 1:], new[:, 1:])
        assert not torch.equal(old[:, 0], new[:, 0])
    bilm(batch_to_ids([["e"]] * 5))  # more rows: the new ones start from zero
    assert states._states[0].shape[1] == 5
    states.reset_states(torch.tensor([True, False]))
    assert not states._states[0][:, 0].any()
    assert states._states[0][:, 1:].any()
    states.reset_states()
    assert states._states is None


# ---- tests/modules/sampled_softmax_loss_test.py ----


def test_sampled_words_are_distinct() -> None:
    """TestSampledSoftmaxLoss.test_choice"""
    sample = draw(1000, 50, seed=0)
    assert len(set(sample.ids.tolist())) == 50
    assert 0 <= min(sample.ids) <= max(sample.ids) < 1000
    assert sample.num_tries >= 50


def test_sampled_loss_is_smaller_than_the_full_one() -> None:
    """TestSampledSoftmaxLoss.test_sampled_softmax_can_run, ..._has_greater_loss_in_train_mode"""
    torch.manual_seed(0)
    head, hidden, targets = SoftmaxHead(10_000, 12), torch.rand(100, 12), torch.randint(0, 1000, (100,))
    sampled = sampled_softmax_loss(head, hidden, targets, draw(10_000, 10, seed=0))
    assert full_softmax_loss(head, hidden, targets) > sampled


def test_sampled_loss_equals_the_full_one_if_other_words_are_biased_out() -> None:
    """TestSampledSoftmaxLoss.test_sampled_equals_unsampled_when_biased_against_non_sampled_positions"""
    torch.manual_seed(0)
    ids = torch.tensor([100, 200, 300, 400, 500, 600, 700, 800, 900, 9999])
    head, hidden, targets = SoftmaxHead(10_000, 12), torch.rand(100, 12), torch.randint(0, 1000, (100,))
    with torch.no_grad():
        head.bias.fill_(-10_000)
        head.bias[ids] = 0
        sampled = sampled_softmax_loss(head, hidden, targets, Sample(ids, torch.tensor(12)))
        full = full_softmax_loss(head, hidden, targets)
    assert abs(sampled - full) / full < 0.001


# ---- allennlp/tests/commands/elmo_test.py (0.9) ----

LINES = [
    "Michael went to the store to buy some eggs .",
    "Joel rolled down the street on his skateboard .",
    "test / this is a first sentence",
]


def embed(tmp_path: Path, lines: list[str], **options: object) -> h5py.File:
    with open(tmp_path / "in.txt", "w+", encoding="utf-8") as file:
        file.write("\n".join(lines))
        file.seek(0)
        ElmoEmbedder(OPTIONS, WEIGHTS).embed_file(file, str(tmp_path / "out.hdf5"), **options)
    return h5py.File(tmp_path / "out.hdf5")


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_embedding_of_a_file(tmp_path: Path, output_format: str) -> None:
    """TestElmoCommand.test_all_embedding_works, test_top_..., test_average_..., test_batch_embedding_works"""
    with embed(tmp_path, LINES, output_format=output_format) as file:
        assert set(file) == {"0", "1", "2", "sentence_to_index"}
        assert json.loads(file["sentence_to_index"][0]) == {line: str(k) for k, line in enumerate(LINES)}
        layers = ElmoEmbedder(OPTIONS, WEIGHTS).embed_sentence(LINES[0].split())
        expected = {"all": layers, "top": layers[2], "average": layers.mean(0)}[output_format]
        np.testing.assert_allclose(file["0"][()], expected, rtol=1e-4, atol=1e-6)


def test_keys_of_a_file(tmp_path: Path) -> None:
    """TestElmoCommand: ..._with_sentences_as_keys, ..._with_forget_sentences, test_duplicate_sentences"""
    with embed(tmp_path, LINES[:2], use_sentence_keys=True) as file:
        assert set(file) == set(LINES[:2])
    with embed(tmp_path, LINES, forget_sentences=True) as file:
        assert set(file) == {"0", "1", "2"}
    with embed(tmp_path, [LINES[0]] * 2) as file:
        assert set(file) == {"0", "1", "sentence_to_index"}
        assert json.loads(file["sentence_to_index"][0]) == {LINES[0]: "1"}


def test_blank_lines_are_refused(tmp_path: Path) -> None:
    """TestElmoCommand.test_empty_sentences_raise_errors"""
    with pytest.raises(DataError, match=r"\[1\]"):
        embed(tmp_path, [LINES[0], "", LINES[1]])


def test_empty_sentence_has_the_width_of_the_model() -> None:
    """TestElmoEmbedder.test_embed_batch_is_empty_sentence; upstream gives (3, 0, 1024) for every model"""
    assert ElmoEmbedder(OPTIONS, WEIGHTS).embed_sentence([]).shape == (3, 0, 32)
