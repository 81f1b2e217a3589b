"""Models whose sizes coincide: whether a layer projects is read from the file, never concluded from equal sizes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import oracle
import pytest
import torch
from peer_models import (
    COINCIDENCES,
    SENTENCES,
    allennlp_state,
    manylangs_layers,
    random_manylangs,
    random_model,
    write_archive,
    write_manylangs,
)

import elmo
from elmo.compat.allennlp import Elmo, _ElmoBiLm, batch_to_ids
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, CharConfig, LSTMConfig, num_parameters
from elmo.weights.convert import convert_model
from elmo.weights.formats import read_model
from elmo.weights.store import save_store

CASES = pytest.mark.parametrize("choices", COINCIDENCES.values(), ids=COINCIDENCES)


def check(model: Path, options: oracle.Options, weights: oracle.Weights) -> None:
    expected, _ = oracle.run(options, weights, SENTENCES)
    embedder = elmo.load(model, device="cpu", tokenizer="whitespace")
    for vectors, layers in zip(embedder.layers(SENTENCES), expected, strict=True):
        np.testing.assert_allclose(vectors, layers[:, 1:-1], atol=2e-5)  # float32 against float64


@CASES
def test_allennlp_archive(tmp_path: Path, choices: dict) -> None:
    options, weights = random_model(**choices)
    check(write_archive(tmp_path / "model.tar.gz", options, allennlp_state(options, weights)), options, weights)


@CASES
def test_options_and_hdf5_pair_of_allennlp(tmp_path: Path, choices: dict) -> None:
    options, weights = random_model(**choices)
    oracle.write(tmp_path, options, weights)
    check(tmp_path / "options.json", options, weights)


@CASES
@pytest.mark.parametrize("bidirectional", [True, False])
def test_options_and_hdf5_pair_of_bilm_tf(tmp_path: Path, choices: dict, bidirectional: bool) -> None:
    """bilm-tf projects only where sizes differ, and its dump of one direction or one layer has names of its own."""
    settings = {"projection_dim": 4, "n_highway": 1, "filters": [[1, 3], [2, 5]], "max_chars": 50, **choices}
    options, weights = oracle.random_model(
        np.random.default_rng(1), **settings, char_input=True, bidirectional=bidirectional, dumped_names=True
    )
    oracle.write(tmp_path, options, weights)
    check(tmp_path / "options.json", options, weights)


@CASES
@pytest.mark.parametrize(("words", "chars"), [(True, True), (False, True), (True, False)])
def test_manylangs_folder(tmp_path: Path, choices: dict, words: bool, chars: bool) -> None:
    options, weights = random_manylangs(words=words, chars=chars, **choices)
    embedder = elmo.load(write_manylangs(tmp_path, options, weights), device="cpu", tokenizer="whitespace")
    sentences = [["the", "cat", "?"], ["abcdefghijklm", "ü" * 30]]
    for tokens, vectors in zip(sentences, embedder.layers(sentences), strict=True):
        np.testing.assert_allclose(vectors, manylangs_layers(options, weights, tokens), atol=2e-5)


@CASES
def test_state_dict_of_allennlp(tmp_path: Path, choices: dict) -> None:
    options, weights = random_model(**choices)
    files = [str(path) for path in oracle.write(tmp_path, *random_model(1, **choices))]
    elmo_module = Elmo(*files, 1, dropout=0.0, scalar_mix_parameters=[-9e10] * options["lstm"]["n_layers"] + [1.0])  # type: ignore[call-arg]
    state = allennlp_state(options, weights, "_elmo_lstm.")
    result = elmo_module.load_state_dict(state, strict=False)
    assert not result.unexpected_keys
    with torch.no_grad():
        vectors = elmo_module.eval()(batch_to_ids(SENTENCES[:1]))["elmo_representations"][0]
    expected, _ = oracle.run(options, weights, SENTENCES[:1])
    np.testing.assert_allclose(vectors[0].numpy(), expected[0][-1, 1:-1], atol=2e-5)


@pytest.mark.parametrize("array", ["_projection", "state_projection"])
def test_state_dict_with_an_array_that_the_module_lacks_is_refused(tmp_path: Path, array: str) -> None:
    choices = COINCIDENCES["dim = filters = projection_dim"]
    options, weights = random_model(**choices)
    is_part = {"_projection": "CNN_proj/", "state_projection": "/W_P_0"}[array]
    files = oracle.write(tmp_path, options, {name: a for name, a in weights.items() if is_part not in name})
    module = _ElmoBiLm(*map(str, files))
    with pytest.raises((RuntimeError, WeightsError), match=r"W_proj|W_P_0"):
        module.load_state_dict(allennlp_state(options, weights, ""))


@CASES
@pytest.mark.parametrize("target", ["elmo", "hdf5"])
def test_conversion_keeps_the_projections(tmp_path: Path, choices: dict, target: str) -> None:
    options, weights = random_model(**choices)
    source = write_archive(tmp_path / "model.tar.gz", options, allennlp_state(options, weights))
    convert_model(source, tmp_path / "out", target=target)
    check(tmp_path / "out", options, weights)


def test_conversion_says_that_bilm_tf_would_drop_a_projection_between_equal_sizes(tmp_path: Path) -> None:
    options, weights = random_model(**COINCIDENCES["dim = projection_dim"])
    source = write_archive(tmp_path / "model.tar.gz", options, allennlp_state(options, weights))
    report = convert_model(source, tmp_path / "out", target="hdf5")
    assert any("bilm-tf" in line for line in report["not_exact"])


def test_config_projects_between_equal_sizes_only_if_it_says_so() -> None:
    lstm = LSTMConfig(cell_dim=8, proj_dim=8)
    assert not lstm.projects  # the meaning of a saved config.json without the field
    assert dataclasses.replace(lstm, project=True).projects
    assert LSTMConfig(cell_dim=9, proj_dim=8).projects
    with pytest.raises(ConfigError, match="9"):
        LSTMConfig(cell_dim=9, proj_dim=8, project=False)


def test_number_of_parameters_counts_both_projections() -> None:
    config = BiLMConfig(
        chars=CharConfig(filters=((1, 8),)),
        lstm=LSTMConfig(cell_dim=8, proj_dim=8, project=True),
        project_tokens=True,
    )
    assert num_parameters(config) == sum(p.numel() for p in BiLM(config).parameters())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_every_number_type_computes_the_projections(tmp_path: Path, dtype: str) -> None:
    options, weights = random_model(**COINCIDENCES["dim = filters = projection_dim"])
    oracle.write(tmp_path, options, weights)
    vectors = elmo.load(tmp_path / "options.json", device="cpu", dtype=dtype).layers(SENTENCES[:1])[0]
    expected = oracle.run(options, weights, SENTENCES[:1])[0][0][:, 1:-1]
    atol = {"float32": 2e-5, "float64": 1e-7, "bfloat16": 0.06, "int8": 0.1}[dtype]
    np.testing.assert_allclose(vectors, expected, atol=atol)


def test_array_without_a_place_is_refused_by_every_reader(tmp_path: Path) -> None:
    options, weights = random_model()
    extra = {**weights, "CNN/W_cnn_9": np.ones((1, 2, 3, 4), np.float32)}
    (tmp_path / "pair").mkdir()
    oracle.write(tmp_path / "pair", options, extra)
    state = allennlp_state(options, weights)
    prefix = next(iter(state)).split("_token_embedder")[0]
    more_state = {**state, prefix + "_token_embedder._extra.weight": torch.ones(3)}
    more_mix = {**state, prefix.removesuffix("_elmo_lstm.") + "scalar_mix_0.scalar_parameters.0": torch.ones(1)}
    folder = write_manylangs(tmp_path / "manylangs", *random_manylangs())
    encoder = torch.load(folder / "encoder.pkl")
    torch.save({**encoder, "forward_layer_0.peephole": torch.ones(3)}, folder / "encoder.pkl")
    for path in (
        tmp_path / "pair" / "options.json",
        write_archive(tmp_path / "a.tar.gz", options, more_state),
        write_archive(tmp_path / "b.tar.gz", options, more_mix),
        folder,
    ):
        with pytest.raises(WeightsError, match="has no place in the model"):
            read_model(path)


def test_long_words_are_cut_before_the_word_lookup_after_a_conversion_too(tmp_path: Path) -> None:
    """As `read_list` of ELMoForManyLangs: "abcdefghijklm" is looked up as "abcdefgh", which the model knows."""
    options, weights = random_manylangs(chars=False)
    source = write_manylangs(tmp_path / "source", options, weights)
    convert_model(source, tmp_path / "ours")
    tokens = ["abcdefghijklm", "cat"]
    for folder in (source, tmp_path / "ours"):
        vectors = elmo.load(folder, device="cpu").layers([tokens])[0]
        np.testing.assert_allclose(vectors, manylangs_layers(options, weights, tokens), atol=2e-5)


@pytest.mark.parametrize("clip", ["cell_clip", "proj_clip"])
def test_clip_of_zero_is_off_in_manylangs_and_allennlp(tmp_path: Path, clip: str) -> None:
    """Both test `if clip:`; before, the file was refused."""
    options, weights = random_manylangs(**{clip: 0})
    embedder = elmo.load(write_manylangs(tmp_path / "m", options, weights), device="cpu")
    unclipped = {**options, "lstm": {**options["lstm"], clip: None}}
    vectors = embedder.layers([["the", "cat"]])[0]
    np.testing.assert_allclose(vectors, manylangs_layers(unclipped, weights, ["the", "cat"]), atol=2e-5)
    options, weights = random_model(**{clip: 0})
    archive = write_archive(tmp_path / "model.tar.gz", options, allennlp_state(options, weights))
    check(archive, {**options, "lstm": {**options["lstm"], clip: None}}, weights)


def test_model_with_a_lexicon_of_261_characters_is_not_written_as_a_model_of_bytes(tmp_path: Path) -> None:
    options, weights = random_manylangs(words=False)
    folder = write_manylangs(tmp_path / "m", options, weights)
    table = np.pad(weights["char_embed"], ((0, 261 - len(weights["char_embed"])), (0, 0)))
    state = torch.load(folder / "token_embedder.pkl")
    torch.save({**state, "char_emb_layer.embedding.weight": torch.from_numpy(table)}, folder / "token_embedder.pkl")
    assert read_model(folder).config.chars.num_chars == 261
    with pytest.raises(ConfigError, match="lexicon"):
        convert_model(folder, tmp_path / "out", target="hdf5")


@pytest.mark.parametrize("name", ["_contextualizer._forward_transformer.attention_0.weight", "transformer.h.0.weight"])
def test_transformer_language_model_is_refused_by_name(tmp_path: Path, name: str) -> None:
    options, _ = random_model()
    with pytest.raises(WeightsError, match="transformer language model"):
        read_model(write_archive(tmp_path / "model.tar.gz", options, {name: torch.ones(3)}))


def test_options_of_a_transformer_are_refused_by_name(tmp_path: Path) -> None:
    options, weights = random_model()
    del options["lstm"]
    oracle.write(tmp_path, {**options, "transformer": {"n_layers": 6}}, weights)
    with pytest.raises(WeightsError, match="transformer language model"):
        read_model(tmp_path / "options.json")


def test_generated_models_have_both_projections() -> None:
    _, weights = random_model(dim=4, filters=[[1, 4]])
    assert weights["CNN_proj/W_proj"].shape == weights["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0"].shape == (4, 4)


@pytest.mark.parametrize("target", ["elmo", "hdf5"])
def test_conversion_of_our_folder_with_an_extra_or_a_missing_tensor_is_refused(tmp_path: Path, target: str) -> None:
    """An extra tensor was left out of weights.hdf5 silently, a missing one was a KeyError."""
    options, weights = random_model()
    oracle.write(tmp_path, options, weights)
    parts = read_model(tmp_path / "options.json")
    name, kernel = "stacks.0.layers.0.kernel", parts.tensors["stacks.0.layers.0.kernel"]
    extra = {**parts.tensors, "stacks.0.layers.9.kernel": kernel.clone()}
    missing = {other: tensor for other, tensor in parts.tensors.items() if other != name}
    for number, (tensors, message) in enumerate(((extra, "unexpected tensors"), (missing, "missing"))):
        source = tmp_path / f"source{number}"
        save_store(source, dataclasses.replace(parts, tensors=tensors))
        with pytest.raises(WeightsError, match=message):
            convert_model(source, tmp_path / "out", target=target)
        assert not (tmp_path / "out").exists()
