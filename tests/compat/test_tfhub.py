"""Code for TF-Hub's ELMo module with the import changed: signatures, outputs, padding and the trainable scalars."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from golden import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.compat import tfhub as hub
from elmo.errors import ConfigError, DataError, WeightsError

MODEL = FIXTURES / "allennlp" / "lm_weights.hdf5"
OUTPUTS = {"word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"}
TEXTS = ["the cat is on the mat", "dogs are in the fog"]
TOKENS: dict[str, Any] = {
    "tokens": [["the", "cat", "is", "on", "the", "mat"], ["dogs", "are", "in", "the", "fog", ""]],
    "sequence_len": [6, 5],
}


MODULE = hub.Module(MODEL, device="cpu")  # a constant, because hypothesis runs a test's body many times


@pytest.fixture
def module() -> hub.Module:
    return MODULE


@pytest.fixture(scope="module")
def oracle_model() -> tuple[oracle.Options, oracle.Weights]:
    return oracle.load(FIXTURES / "allennlp" / "options.json", MODEL)


def oracle_layers(model, tokens: list[str]) -> np.ndarray:
    """(L+1, n, D) of one sentence that starts from a zero state."""
    options, weights = model
    arrays, _ = oracle.run(options, weights, [tokens], None)
    return arrays[0][:, 1:-1]


def test_default_signature_gives_the_five_outputs(module, oracle_model):
    outputs = module(TEXTS, signature="default", as_dict=True)
    D = module.embedder.dim
    assert {key: array.shape for key, array in outputs.items()} == {
        "word_emb": (2, 6, D // 2), "lstm_outputs1": (2, 6, D), "lstm_outputs2": (2, 6, D), "elmo": (2, 6, D),
        "default": (2, D),
    }  # fmt: skip
    assert all(isinstance(array, np.ndarray) and array.dtype == np.float32 for array in outputs.values())
    for row, text in enumerate(TEXTS):
        layers, n = oracle_layers(oracle_model, text.split()), len(text.split())
        close = {"rtol": 0, "atol": 2e-6}  # float32 against the oracle's float64
        np.testing.assert_allclose(outputs["word_emb"][row, :n], layers[0, :, : D // 2], **close)
        np.testing.assert_allclose(outputs["lstm_outputs1"][row, :n], layers[1], **close)
        np.testing.assert_allclose(outputs["lstm_outputs2"][row, :n], layers[2], **close)
        np.testing.assert_allclose(outputs["elmo"][row, :n], layers.mean(axis=0), **close)
        np.testing.assert_allclose(outputs["default"][row], layers.mean(axis=(0, 1)), **close)


def test_both_signatures_agree_and_padding_is_zero(module):
    strings, tokens = module(TEXTS, as_dict=True), module(TOKENS, signature="tokens", as_dict=True)
    assert set(strings) == set(tokens) == OUTPUTS
    for key in OUTPUTS:
        np.testing.assert_array_equal(strings[key], tokens[key])
    for key in OUTPUTS - {"default"}:
        assert not tokens[key][1, 5:].any()
        assert tokens[key][1, :5].any(axis=-1).all()


def test_without_as_dict_it_is_the_mean_of_each_sentence(module):
    np.testing.assert_array_equal(module(TEXTS), module(TEXTS, as_dict=True)["default"])


def test_padding_wider_than_all_sentences_is_kept_and_does_not_count(module):
    wide = {"tokens": [[*tokens, "", ""] for tokens in TOKENS["tokens"]], "sequence_len": [6, 5]}
    outputs, narrow = module(wide, "tokens", True), module(TOKENS, "tokens", True)
    assert outputs["elmo"].shape[1] == 8
    np.testing.assert_array_equal(outputs["elmo"][:, :6], narrow["elmo"])
    np.testing.assert_allclose(outputs["default"], narrow["default"], rtol=0, atol=1e-6)


def test_tokens_beyond_sequence_len_are_padding(module):
    short = module({"tokens": [["dogs", "are", "in"]], "sequence_len": [2]}, "tokens", True)
    expected = module({"tokens": [["dogs", "are", ""]], "sequence_len": [2]}, "tokens", True)
    for key in OUTPUTS:
        np.testing.assert_array_equal(short[key], expected[key])


def test_a_sentence_does_not_depend_on_its_batch(module):
    alone = module(TEXTS[1:], as_dict=True)["elmo"]
    np.testing.assert_allclose(module(TEXTS, as_dict=True)["elmo"][1:, :5], alone, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(module(TEXTS[1:], as_dict=True)["elmo"], alone)


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_layers_are_float32_whatever_the_default_dtype_of_torch_is(module, default):
    expected = module(TEXTS, as_dict=True)["elmo"]
    torch.set_default_dtype(default)
    try:
        found = module(TEXTS, as_dict=True)["elmo"]
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_texts_are_split_on_spaces_only(module):
    outputs = module(["  two\ttabs  ünï\n.  ", ""], as_dict=True)
    expected = module({"tokens": [["two\ttabs", "ünï\n."], ["", ""]], "sequence_len": [2, 0]}, "tokens", True)
    for key in OUTPUTS:
        np.testing.assert_array_equal(outputs[key], expected[key])
    assert not outputs["default"][1].any()


words = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=25)
@given(st.lists(st.lists(words, max_size=6), min_size=1, max_size=4), st.integers(0, 2))
def test_outputs_are_the_plain_layers_of_random_sentences(sentences, extra):
    module = MODULE
    width = max(map(len, sentences)) + extra
    padded = [tokens + [""] * (width - len(tokens)) for tokens in sentences]
    outputs = module({"tokens": padded, "sequence_len": [len(s) for s in sentences]}, "tokens", True)
    for row, layers in enumerate(module.embedder.layers(sentences)):
        n, P = layers.shape[1], module.embedder.dim // 2
        np.testing.assert_allclose(outputs["word_emb"][row, :n], layers[0, :, :P], rtol=0, atol=1e-6)
        np.testing.assert_allclose(outputs["lstm_outputs1"][row, :n], layers[1], rtol=0, atol=1e-6)
        np.testing.assert_allclose(outputs["lstm_outputs2"][row, :n], layers[2], rtol=0, atol=1e-6)
        np.testing.assert_allclose(outputs["elmo"][row, :n], layers.mean(axis=0), rtol=0, atol=1e-6)
        mean = layers.mean(axis=(0, 1)) if n else np.zeros(2 * P)
        np.testing.assert_allclose(outputs["default"][row], mean, rtol=0, atol=1e-6)


def test_the_four_scalars_train():
    module = hub.Module(MODEL, trainable=True, output="torch", device="cpu")
    assert sum(p.numel() for p in module.parameters()) == sum(v.numel() for v in module.trainable_variables) == 4
    assert set(module.variable_map) == {"aggregation/weights", "aggregation/scaling"}
    np.testing.assert_allclose(module.layer_weights, [1 / 3] * 3, rtol=1e-6)
    assert module.scale == 1
    target = module(TEXTS, as_dict=True)["lstm_outputs2"]
    optimizer = torch.optim.Adam(module.trainable_variables, lr=0.1)
    losses = []
    for _ in range(60):
        loss = (module(TEXTS, as_dict=True)["elmo"] - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert module.layer_weights.argmax() == 2, "the target is the top layer"
    outputs, weights = module(TEXTS, as_dict=True), torch.from_numpy(module.layer_weights)
    layers = torch.stack([outputs["word_emb"].repeat(1, 1, 2), outputs["lstm_outputs1"], outputs["lstm_outputs2"]])
    mixed = module.scale * torch.einsum("l,lbtd->btd", weights, layers)
    torch.testing.assert_close(outputs["elmo"].detach(), mixed, rtol=0, atol=1e-6)
    lengths = torch.tensor([6.0, 5.0])
    torch.testing.assert_close(outputs["default"].detach(), mixed.sum(1) / lengths[:, None], rtol=0, atol=1e-6)


def test_without_trainable_nothing_is_trained(module):
    assert module.trainable_variables == []
    assert len(module.variables) == 2


def test_load_gives_signatures_as_in_tensorflow_2():
    module = hub.load(MODEL, device="cpu")
    outputs = module.signatures["default"](np.array(TEXTS))
    assert set(outputs) == OUTPUTS
    tokens = module.signatures["tokens"](tokens=np.array(TOKENS["tokens"]), sequence_len=np.array([6, 5], np.int32))
    np.testing.assert_array_equal(outputs["elmo"], tokens["elmo"])


class EagerTensor:
    """What a tensor of TensorFlow looks like from outside: strings are bytes, and `numpy` gives an array of them."""

    def __init__(self, values) -> None:
        self._array = np.array([[t.encode() for t in v] if isinstance(v, list) else v.encode() for v in values], object)

    def numpy(self) -> np.ndarray:
        return self._array


def test_bytes_and_tensors_are_read(module):
    expected = module(TEXTS)
    np.testing.assert_array_equal(module([text.encode() for text in TEXTS]), expected)
    np.testing.assert_array_equal(module(EagerTensor(TEXTS)), expected)
    tokens = {"tokens": EagerTensor(TOKENS["tokens"]), "sequence_len": torch.tensor([6, 5])}
    np.testing.assert_array_equal(module(tokens, signature="tokens"), expected)


def test_a_model_without_tokens_and_an_empty_batch(module):
    D = module.embedder.dim
    assert module([], as_dict=True)["elmo"].shape == (0, 0, D)
    assert module([""], as_dict=True)["elmo"].shape == (1, 0, D)
    assert module({"tokens": [], "sequence_len": []}, "tokens", True)["default"].shape == (0, D)


@pytest.mark.parametrize(
    ("inputs", "signature", "message"),
    [
        ("one text", "default", "expects a list of strings"),
        ([["a", "b"]], "default", "expects a list of strings"),
        ([1], "default", r"inputs\[0\] is int"),
        ([b"\xff"], "default", "not UTF-8"),
        (["a"], "tokens", "expects a dict"),
        ({"tokens": [["a"]]}, "tokens", "expects a dict"),
        ({"tokens": [["a", "b"], ["c"]], "sequence_len": [2, 1]}, "tokens", "sentences of one length"),
        ({"tokens": [["a", "b"]], "sequence_len": [3]}, "tokens", "expected 0 to 2"),
        ({"tokens": [["a", "b"]], "sequence_len": [-1]}, "tokens", "expected 0 to 2"),
        ({"tokens": [["a", "b"]], "sequence_len": [1, 1]}, "tokens", "expected 1 integers"),
        ({"tokens": [["a", "b"]], "sequence_len": [1.5]}, "tokens", "expected 1 integers"),
        ({"tokens": [["a", None]], "sequence_len": [2]}, "tokens", r"tokens\[0\]\[1\] is NoneType"),
    ],
)
def test_wrong_inputs_are_refused(module, inputs, signature, message):
    with pytest.raises(DataError, match=message):
        module(inputs, signature=signature)


def test_wrong_settings_are_refused(module):
    with pytest.raises(ConfigError, match="signature is 'words'"):
        module(TEXTS, signature="words")
    with pytest.raises(ConfigError, match="output is 'tf'"):
        hub.Module(MODEL, output="tf")
    with pytest.raises(ConfigError, match="not the URL"):
        hub.Module("https://tfhub.dev/google/universal-sentence-encoder/4")


def test_the_url_loads_the_published_model_and_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("ELMO_HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING), pytest.raises(WeightsError, match="elmo fetch original"):
        hub.load("https://tfhub.dev/google/elmo/3")
    assert any(record.levelno == logging.WARNING for record in caplog.records), "the weights are not TF-Hub's"
