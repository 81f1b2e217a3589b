"""Code for AllenNLP's Elmo with the import changed: golden vectors, state, mixes, gradients, common usage."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import oracle
import pytest
import torch
from golden import FIXTURES, golden_batches, golden_model
from torch import nn

from elmo.compat.allennlp import Elmo, ElmoTokenEmbedder, ScalarMix, _ElmoBiLm, batch_to_ids
from elmo.errors import ConfigError, WeightsError
from elmo.weights.names import tensor_specs, to_published

OPTIONS_FILE = str(FIXTURES / "allennlp" / "options.json")
WEIGHT_FILE = str(FIXTURES / "allennlp" / "lm_weights.hdf5")
FILES = (OPTIONS_FILE, WEIGHT_FILE)
TOP = [-9e10, -9e10, 1.0]  # before the softmax: the last layer alone
SENTENCES = [["The", "sentence", "."], ["ELMo", "helps", "disambiguate", "ELMo", "from", "Elmo", "."]]


def make(num: int = 1, **options) -> Elmo:
    return Elmo(*FILES, num, **{"dropout": 0.0, **options})


def row_states(elmo: Elmo):
    return elmo._elmo_lstm._elmo_lstm


# ---- ids ----


def test_batch_to_ids_gives_the_published_ids():
    ids = batch_to_ids([["The", "Āt"], ["<S>"], []])
    assert ids.shape == (3, 2, 50)
    assert ids.dtype == torch.int64
    assert ids[0, 0].tolist() == [259, 85, 105, 102, 260] + [261] * 45
    assert ids[0, 1].tolist() == [259, 197, 129, 117, 260] + [261] * 45
    assert ids[1, 0].tolist() == [259, 257, 260] + [261] * 47
    assert not ids[1, 1].any()
    assert not ids[2].any()


@pytest.mark.parametrize(("batch", "shape"), [([], (0, 0, 50)), ([[]], (1, 0, 50)), ([[], []], (2, 0, 50))])
def test_batch_to_ids_of_empty_sentences_has_no_tokens(batch, shape):
    assert batch_to_ids(batch).shape == shape


@pytest.mark.parametrize("batch", [["A", "flat", "list"], "a string", [["a"], "b c"]])
def test_words_instead_of_sentences_are_refused(batch):
    with pytest.raises(TypeError, match="expected a sentence"):
        batch_to_ids(batch)


def test_sentences_instead_of_character_ids_are_refused():
    """The error was "'list' object has no attribute 'shape'"."""
    for inputs in ([["The", "cat"]], [torch.zeros(1, 2, 50)]):
        with pytest.raises(TypeError, match=r"inputs is a list; expected character ids.*batch_to_ids"):
            Elmo(*FILES)(inputs)


# ---- vectors and state ----


def test_all_golden_batches_with_carried_state():
    elmo = make(scalar_mix_parameters=TOP).eval()
    stateless = make(scalar_mix_parameters=TOP).eval()
    stateless._elmo_lstm._elmo_lstm.stateful = False
    for b, (sentences, expected) in enumerate(golden_batches("allennlp")):
        output, alone = elmo(batch_to_ids(sentences)), stateless(batch_to_ids(sentences))
        assert output["mask"].sum(dim=1).tolist() == [len(sentence) for sentence in sentences]
        for row, top in enumerate(expected):
            vectors = output["elmo_representations"][0][row]
            np.testing.assert_allclose(vectors[: len(top)].numpy(), top, rtol=0, atol=2e-6)
            assert not vectors[len(top) :].any()
            difference = np.abs(alone["elmo_representations"][0][row, : len(top)].numpy() - top).max()
            assert (difference < 2e-6) == (b == 0)


def test_the_same_sentence_twice_differs_until_the_state_is_reset():
    elmo = make().eval()
    ids = batch_to_ids(SENTENCES)
    first, second = (elmo(ids)["elmo_representations"][0] for _ in range(2))
    assert (first - second).abs().max() > 1e-3
    elmo._elmo_lstm._elmo_lstm.reset_states()
    assert torch.equal(elmo(ids)["elmo_representations"][0], first)
    row_states(elmo)._states = None  # another common way to reset
    assert torch.equal(elmo(ids)["elmo_representations"][0], first)


def test_state_is_per_row_grows_and_rows_beyond_a_batch_are_not_changed():
    elmo = make()
    ids = batch_to_ids([*SENTENCES, ["third"], ["fourth", "."]])
    elmo(ids[:2])
    h, c = row_states(elmo)._states
    assert (h.shape, c.shape) == ((2, 2, 32), (2, 2, 128))  # (L, B, forward and backward)
    elmo(ids)
    grown, _ = row_states(elmo)._states
    assert grown.shape == (2, 4, 32)
    elmo(ids[2:3])
    after, _ = row_states(elmo)._states
    assert torch.equal(after[:, 1:], grown[:, 1:])
    assert not torch.equal(after[:, 0], grown[:, 0])
    row_states(elmo).reset_states(torch.tensor([0, 1, 0]))
    reset, cells = row_states(elmo)._states
    assert not reset[:, 1].any()
    assert not cells[:, 1].any()
    assert torch.equal(reset[:, [0, 2, 3]], after[:, [0, 2, 3]])


def test_rows_agree_with_the_oracle_when_sizes_change_and_sentences_are_empty():
    options, weights = oracle.load(*FILES)
    elmo, state = make(3, scalar_mix_parameters=None).eval(), None
    for batch in ([["a"], ["b", "c"]], [[], ["d"], ["e", "f", "g"]], [["h"]], [["i", "j"], ["k"], [], ["l"]]):
        expected, state = oracle.run(options, weights, batch, state)
        output = elmo(batch_to_ids(batch))
        for row, layers in enumerate(expected):  # an empty sentence has two boundaries and changes the row's state
            vectors = output["elmo_representations"][2][row, : len(batch[row])]
            np.testing.assert_allclose(vectors.detach(), layers[:, 1:-1].mean(axis=0), atol=1e-5)


def test_state_has_no_gradients():
    elmo = make(requires_grad=True)
    for _ in range(2):  # a second backward through the first call's graph would raise
        elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].sum().backward()
    assert not any(state.requires_grad for state in row_states(elmo)._states)


def test_state_from_inference_mode_can_be_used_in_training():
    elmo = make(requires_grad=True)
    with torch.inference_mode():
        elmo(batch_to_ids(SENTENCES))
    elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].sum().backward()


def test_batch_without_tokens():
    output = make(2, keep_sentence_boundaries=False)(batch_to_ids([[], []]))
    assert [v.shape for v in output["elmo_representations"]] == [(2, 0, 32)] * 2
    assert output["mask"].shape == (2, 0)


# ---- shapes ----


def test_two_mixes_are_equal_at_first_and_have_the_width_of_the_model():
    elmo = make(2)
    output = elmo(batch_to_ids(SENTENCES))
    first, second = output["elmo_representations"]
    assert first.shape == second.shape == (2, 7, 32)
    assert torch.equal(first, second)
    assert output["mask"].tolist() == [[True] * 3 + [False] * 4, [True] * 7]
    assert elmo.get_output_dim() == 32
    assert elmo._elmo_lstm.num_layers == 3


def test_boundaries_can_be_kept():
    ids = batch_to_ids(SENTENCES)
    with_boundaries, plain = make(keep_sentence_boundaries=True)(ids), make()(ids)
    assert with_boundaries["mask"].sum(dim=1).tolist() == [5, 9]
    vectors = with_boundaries["elmo_representations"][0]
    assert vectors.shape == (2, 9, 32)
    assert vectors[0, 4].any()
    assert torch.equal(vectors[1, 1:8], plain["elmo_representations"][0][1])
    assert torch.equal(vectors[0, 1:4], plain["elmo_representations"][0][0, :3])
    assert make(keep_sentence_boundaries=True)(ids[:, None])["elmo_representations"][0].shape == (2, 1, 9, 32)


@pytest.mark.parametrize("cached", [False, True])
def test_deeper_input_is_the_same_as_its_slices(cached):
    words = ["@@PAD@@", *sorted({token for sentence in SENTENCES for token in sentence})]
    elmo = make(3, vocab_to_cache=words if cached else None)
    batches = [SENTENCES, [["The"], ["Elmo", "."]], [["helps"], ["sentence"]]]
    ids = torch.stack([nn.functional.pad(i, (0, 0, 0, 7 - i.shape[1])) for i in map(batch_to_ids, batches)], dim=1)
    numbers = torch.zeros(2, 3, 7, dtype=torch.long)
    for index, batch in enumerate(batches):
        for row, sentence in enumerate(batch):
            numbers[row, index, : len(sentence)] = torch.tensor([words.index(token) for token in sentence])
    nested = elmo(ids, numbers if cached else None)
    assert nested["mask"].shape == (2, 3, 7)
    for index in range(3):
        row_states(elmo).reset_states()
        part = elmo(ids[:, index], numbers[:, index] if cached else None)
        for k in range(3):
            np.testing.assert_allclose(
                nested["elmo_representations"][k][:, index].detach(),
                part["elmo_representations"][k].detach(),
                atol=1e-6,
            )


def test_another_module_can_replace_the_bilm():
    class Numbers(nn.Module):
        num_layers = 2

        def get_output_dim(self):
            return 4

        def forward(self, inputs, word_inputs):
            mask = torch.tensor([[True, True, True, True], [True, True, True, False]])
            return {"activations": [torch.full((2, 4, 4), 1.0), torch.full((2, 4, 4), 3.0)], "mask": mask}

    elmo = Elmo(None, None, 1, dropout=0.0, module=Numbers())
    output = elmo(torch.zeros(2, 2, 50, dtype=torch.long))
    assert output["elmo_representations"][0][:, :, 0].tolist() == [[2.0, 2.0], [2.0, 0.0]]
    assert elmo.get_output_dim() == 4
    with pytest.raises(ConfigError):
        Elmo(*FILES, 1, module=Numbers())


# ---- the token layer ----


def test_token_layer_of_a_vocabulary_agrees_with_the_oracle():
    options, weights = oracle.load(*FILES)
    words = (FIXTURES / "allennlp" / "vocab_test.txt").read_text(encoding="utf-8").split()
    assert {"<S>", "</S>", "<UNK>"} <= set(words)
    layer, mask = (_ElmoBiLm(*FILES)(batch_to_ids([words]))[key] for key in ("activations", "mask"))
    expected = oracle.token_vectors(options, weights, oracle.char_ids(words, 50))
    assert mask.all()
    np.testing.assert_allclose(layer[0][0, :, :16], expected, atol=2e-6)
    np.testing.assert_array_equal(layer[0][0, :, :16], layer[0][0, :, 16:])
    np.testing.assert_array_equal(layer[0][0, 0], layer[0][0, 1 + words.index("<S>")])
    np.testing.assert_array_equal(layer[0][0, -1], layer[0][0, 1 + words.index("</S>")])


def test_cached_words_give_the_same_vectors_as_their_characters():
    words = ["@@PAD@@", "The", "sentence", ".", "ELMo", "helps", "disambiguate", "from", "Elmo"]
    numbers = torch.tensor([[1, 2, 3, 0, 0, 0, 0], [4, 5, 6, 4, 7, 8, 3]])
    cached, plain = _ElmoBiLm(*FILES, vocab_to_cache=words), _ElmoBiLm(*FILES)
    no_characters = torch.zeros(2, 7, 50, dtype=torch.long)  # the characters must not be used
    expected = plain(batch_to_ids(SENTENCES))["activations"]
    for layer, reference in zip(cached(no_characters, numbers)["activations"], expected, strict=True):
        np.testing.assert_allclose(layer, reference, atol=1e-6)


def test_words_outside_the_cache_fall_back_to_characters():
    elmo = make(vocab_to_cache=["@@PAD@@", "The", "sentence"])
    ids, unknown = batch_to_ids(SENTENCES), torch.full((2, 7), 3)
    assert torch.equal(elmo(ids, unknown)["elmo_representations"][0], make()(ids)["elmo_representations"][0])


def test_word_ids_without_a_cache_are_ignored():
    ids = batch_to_ids(SENTENCES)
    output = make()(ids, torch.ones(2, 7, dtype=torch.long))
    assert torch.equal(output["elmo_representations"][0], make()(ids)["elmo_representations"][0])


# ---- the mix ----


def test_mix_is_the_weighted_sum():
    mix = ScalarMix(3)
    layers = [torch.randn(3, 4, 5) for _ in range(3)]
    for k, value in enumerate((0.1, 0.2, 0.3)):
        mix.scalar_parameters[k].data[0] = value
    mix.gamma.data[0] = 0.5
    weights = np.exp([0.1, 0.2, 0.3]) / np.exp([0.1, 0.2, 0.3]).sum()
    expected = 0.5 * sum(weight * layer.numpy() for weight, layer in zip(weights, layers, strict=True))
    np.testing.assert_allclose(mix(layers, torch.ones(3, 4)).detach(), expected, atol=1e-6)


@pytest.mark.parametrize("use_mask", [False, True])
def test_mix_layer_norm_agrees_with_the_oracle(use_mask):
    mix = ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=[0.4, -1.0, 2.0], trainable=False)
    layers = torch.randn(3, 2, 6, 5)
    mask = torch.rand(2, 6) < 0.6 if use_mask else torch.ones(2, 6, dtype=torch.bool)
    expected = oracle.mix(layers.numpy(), mask.numpy(), np.array([0.4, -1.0, 2.0]), 1.0, layer_norm="batch")
    np.testing.assert_allclose(mix(list(layers), mask if use_mask else None), expected, atol=1e-5)


def test_elmo_layer_norm_includes_the_boundaries():
    options, weights = oracle.load(*FILES)
    output = make(do_layer_norm=True)(batch_to_ids(SENTENCES))
    rows, _ = oracle.run(options, weights, SENTENCES)
    layers = np.zeros((3, 2, 9, 32))
    mask = np.zeros((2, 9), dtype=bool)
    for row, array in enumerate(rows):
        layers[:, row, : array.shape[1]], mask[row, : array.shape[1]] = array, True
    expected = oracle.mix(layers, mask, np.zeros(3), 1.0, layer_norm="batch")
    vectors = output["elmo_representations"][0].detach().numpy()
    np.testing.assert_allclose(vectors[1], expected[1, 1:8], atol=1e-5)
    np.testing.assert_allclose(vectors[0, :3], expected[0, 1:4], atol=1e-5)
    assert not vectors[0, 3:].any()  # although a normalised zero is not zero


def test_wrong_numbers_of_layers_are_refused():
    with pytest.raises(ConfigError):
        ScalarMix(3)([torch.zeros(1, 1, 2)] * 2)
    with pytest.raises(ConfigError):
        make(scalar_mix_parameters=[0.0, 1.0])


def test_mix_layer_norm_of_many_tokens_is_finite_in_float16():
    layers = torch.randn(3, 2, 50, 1024)
    mixed, expected = (ScalarMix(3, do_layer_norm=True)(list(x)) for x in (layers.half(), layers))
    torch.testing.assert_close(mixed.float(), expected, rtol=0, atol=5e-3)  # float16 has 11 bits


def test_mix_weights_passed_as_arguments_are_not_trained():
    elmo = make(scalar_mix_parameters=[1.0, 2.0, 3.0])
    assert [p.item() for p in elmo.scalar_mix_0.scalar_parameters] == [1.0, 2.0, 3.0]
    assert not any(p.requires_grad for p in elmo.parameters())


def test_mix_parameters_can_be_accessed_as_in_allennlp():
    elmo = make()
    penalty = 0.1 * (elmo.scalar_mix_0.scalar_parameters[0] ** 2 + elmo.scalar_mix_0.scalar_parameters[2] ** 2)
    penalty.sum().backward()
    assert elmo.scalar_mix_0.scalar_parameters[2].grad is not None
    for parameter in elmo.scalar_mix_0.scalar_parameters[:-1]:
        parameter.data.fill_(-9e10)
    elmo.scalar_mix_0.scalar_parameters.requires_grad_(False)
    assert [name for name, p in elmo.named_parameters() if p.requires_grad] == ["scalar_mix_0.gamma"]
    output = elmo.eval()(batch_to_ids(SENTENCES))["elmo_representations"][0]
    top = make(scalar_mix_parameters=TOP).eval()(batch_to_ids(SENTENCES))["elmo_representations"][0]
    assert torch.equal(output, top)
    assert elmo.scalar_mix_0.gamma.item() == 1.0


# ---- training ----


@pytest.mark.parametrize("requires_grad", [False, True])
def test_requires_grad_applies_to_the_whole_bilm(requires_grad):
    elmo = make(2, requires_grad=requires_grad)
    sum(vectors.sum() for vectors in elmo(batch_to_ids(SENTENCES))["elmo_representations"]).backward()
    grads = {name: p.grad is not None for name, p in elmo.named_parameters()}
    assert set(grads.values()) == ({True} if requires_grad else {True, False})
    assert all(has == requires_grad for name, has in grads.items() if "_elmo_lstm" in name)
    assert all(has for name, has in grads.items() if "scalar_mix" in name)


def test_a_softmax_file_is_ignored(tmp_path):
    options, weights = oracle.load(*FILES)
    paths = oracle.write(tmp_path, options, weights)
    with h5py.File(tmp_path / "softmax_weights.hdf5", "w") as file:
        file["softmax/W"], file["softmax/b"] = np.ones((5, 16), np.float32), np.ones(5, np.float32)
    elmo = Elmo(*map(str, paths), 1, requires_grad=True)  # type: ignore[call-arg]
    assert not any("head" in name for name, _ in elmo.named_parameters())  # DDP refuses parameters without gradients


def test_dropout_is_separate_for_each_mix_and_for_training_only():
    elmo = make(2, dropout=0.5)
    row_states(elmo).stateful = False
    ids = batch_to_ids(SENTENCES)
    plain = elmo.eval()(ids)["elmo_representations"][0]
    first, second = elmo.train()(ids)["elmo_representations"]
    assert not torch.equal(first == 0, second == 0)
    not_dropped = first != 0
    assert 0.2 < not_dropped[1].float().mean() < 0.8
    assert torch.allclose(first[not_dropped], 2 * plain[not_dropped])


class Tagger(nn.Module):
    """A typical tagger written for AllenNLP."""

    def __init__(self, num_tags):
        super().__init__()
        self.elmo = Elmo(OPTIONS_FILE, WEIGHT_FILE, 1, dropout=0.1)
        self.lstm = nn.LSTM(self.elmo.get_output_dim(), 8, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(16, num_tags)

    def forward(self, sentences):
        embeddings = self.elmo(batch_to_ids(sentences))
        hidden, _ = self.lstm(embeddings["elmo_representations"][0])
        return self.tag(hidden), embeddings["mask"].long()


def test_a_typical_tagger_trains_saves_and_loads():
    torch.manual_seed(1)
    tagger = Tagger(3)
    tags = torch.tensor([[0, 1, 2, -1, -1, -1, -1], [1, 0, 0, 1, 0, 1, 2]])
    optimizer = torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(25):
        logits, mask = tagger(SENTENCES)
        loss = nn.functional.cross_entropy(logits[mask == 1], tags[mask == 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert any(p.item() != 0 for p in tagger.elmo.scalar_mix_0.scalar_parameters)
    file = io.BytesIO()
    torch.save(tagger.state_dict(), file)
    file.seek(0)
    loaded = Tagger(3)
    loaded.load_state_dict(torch.load(file))
    row_states(tagger.elmo).reset_states()
    assert torch.equal(tagger.eval()(SENTENCES)[0], loaded.eval()(SENTENCES)[0])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda elmo: pickle.loads(pickle.dumps(elmo))])
def test_copies_start_with_equal_but_separate_state(duplicate):
    elmo = make(2).eval()
    ids = batch_to_ids(SENTENCES)
    elmo(ids)
    other = duplicate(elmo)
    next_vectors = elmo(ids)["elmo_representations"][1]
    assert torch.equal(other(ids)["elmo_representations"][1], next_vectors)
    other.load_state_dict(elmo.state_dict())
    assert not torch.equal(elmo(ids)["elmo_representations"][1], next_vectors)


def test_state_is_not_part_of_a_state_dict():
    elmo = make()
    names = set(elmo.state_dict())
    elmo(batch_to_ids(SENTENCES))
    assert set(elmo.state_dict()) == names == {name for name, _ in elmo.named_parameters()}
    assert {"scalar_mix_0.gamma", "scalar_mix_0.scalar_parameters.2"} <= names


def allennlp_state(prefix: str) -> dict[str, torch.Tensor]:
    """The fixture's biLM with all weights doubled, to make it another one, in AllenNLP's names and layout."""
    model = golden_model("allennlp")
    source = {
        spec.published_name: 2 * to_published(spec, model.state_dict()[spec.name])
        for spec in tensor_specs(model.config)
    }
    state = {"_token_embedder._char_embedding_weights": np.vstack([np.zeros((1, 4)), source["char_embed"]])}
    for i in range(5):
        state[f"_token_embedder.char_conv_{i}.weight"] = source[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0)
        state[f"_token_embedder.char_conv_{i}.bias"] = source[f"CNN/b_cnn_{i}"]
    for k in range(2):
        for name, join in (("weight", "W"), ("bias", "b")):
            transform, carry = (source[f"CNN_high_{k}/{join}_{part}"].T for part in ("transform", "carry"))
            state[f"_token_embedder._highways._layers.{k}.{name}"] = np.concatenate([transform, -carry])
    state["_token_embedder._projection.weight"] = source["CNN_proj/W_proj"].T
    state["_token_embedder._projection.bias"] = source["CNN_proj/b_proj"]
    for d, word in enumerate(("forward", "backward")):
        for layer in range(2):
            cell, key = f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/", f"_elmo_lstm.{word}_layer_{layer}."
            i, g, f, o = np.split(np.vstack([source[cell + "W_0"], source[cell + "B"]]), 4, axis=1)
            f[-1] += 1
            gates = np.hstack([i, f, g, o])
            state[key + "input_linearity.weight"], state[key + "state_linearity.weight"] = gates[:16].T, gates[16:32].T
            state[key + "state_linearity.bias"] = gates[32]
            state[key + "state_projection.weight"] = source[cell + "W_P_0"].T
    return {f"{prefix}_elmo_lstm.{key}": torch.tensor(np.ascontiguousarray(a)).float() for key, a in state.items()}


def test_state_dict_of_an_allennlp_task_model_loads():
    state = allennlp_state("elmo.")
    state["elmo.scalar_mix_0.gamma"] = torch.tensor([1.5])
    for k in range(3):
        state[f"elmo.scalar_mix_0.scalar_parameters.{k}"] = torch.tensor([0.1 * k])
    tagger = Tagger(3)
    state |= {key: value for key, value in tagger.state_dict().items() if not key.startswith("elmo.")}
    before = {name: tensor.clone() for name, tensor in tagger.elmo._elmo_lstm.bilm.state_dict().items()}
    tagger.load_state_dict(state)
    for name, tensor in tagger.elmo._elmo_lstm.bilm.state_dict().items():
        torch.testing.assert_close(tensor, 2 * before[name], rtol=0, atol=1e-6)  # the forget bias adds a rounding error
    assert tagger.elmo.scalar_mix_0.gamma.item() == 1.5
    del state["elmo._elmo_lstm._token_embedder.char_conv_2.bias"]
    with pytest.raises(WeightsError, match="char_conv_2"):
        tagger.load_state_dict(state)


# ---- construction ----


def test_from_params_takes_a_dict():
    elmo = Elmo.from_params(
        {"options_file": OPTIONS_FILE, "weight_file": WEIGHT_FILE, "num_output_representations": 2, "dropout": 0.25}
    )
    assert elmo._dropout.p == 0.25
    assert len(elmo._scalar_mixes) == 2


def test_token_embedder_projects_and_reports_its_width():
    ids = batch_to_ids(SENTENCES)
    plain = ElmoTokenEmbedder(*FILES, dropout=0.0)
    assert torch.equal(plain(ids), make()(ids)["elmo_representations"][0])
    assert plain.get_output_dim() == 32
    projected = ElmoTokenEmbedder.from_params(
        {"type": "elmo_token_embedder", "options_file": OPTIONS_FILE, "weight_file": WEIGHT_FILE, "projection_dim": 20}
    )
    assert projected(ids).shape == (2, 7, 20)
    assert projected(ids[:, None]).shape == (2, 1, 7, 20)
    assert projected.get_output_dim() == 20


def test_a_name_alone_is_enough() -> None:
    module = Elmo("tiny-random", num_output_representations=2, dropout=0)
    representations = module(batch_to_ids([["a", "b"]]))["elmo_representations"]
    assert [tuple(mix.shape) for mix in representations] == [(1, 2, module.get_output_dim())] * 2


@pytest.mark.parametrize(
    ("folder", "name"),
    [("2x1024_128_2048cnn_1xhighway", "small"), ("2x4096_512_2048cnn_2xhighway_5.5B", "original-5.5b")],
)
def test_urls_of_published_files_name_the_models(folder, name, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_HOME", str(tmp_path))
    for server in ("s3-us-west-2.amazonaws.com/allennlp", "allennlp.s3.amazonaws.com"):
        stem = f"https://{server}/models/elmo/{folder}/elmo_{folder}"
        with pytest.raises(WeightsError, match=f"'{name}' is not on this machine"):
            Elmo(f"{stem}_options.json", f"{stem}_weights.hdf5", 1)
    with pytest.raises(WeightsError, match="not the URL of a known model"):
        Elmo("https://example.org/options.json", "https://example.org/weights.hdf5", 1)


# ---- several processes ----


def _train_in_parallel(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    elmo = make(2, requires_grad=True)
    model = nn.parallel.DistributedDataParallel(elmo)
    for _ in range(2):  # batches of different sizes, so the states have different shapes
        output = model(batch_to_ids(SENTENCES[: rank + 1]))
        sum(vectors.square().sum() for vectors in output["elmo_representations"]).backward()
    torch.save({name: p.grad for name, p in elmo.named_parameters()}, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_share_gradients_but_not_states(tmp_path):
    torch.multiprocessing.spawn(_train_in_parallel, (tmp_path,), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name, grad in first.items():
        assert grad.any(), name
        torch.testing.assert_close(grad, second[name], rtol=0, atol=0)


def test_the_example_runs():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, root / "examples" / "from_allennlp.py"],
        env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Ada/PER lives/O in/O London/LOC ./O" in done.stdout
    assert "Mary/PER flew/O to/O Berlin/LOC ./O" in done.stdout, "names that it was not trained on"
