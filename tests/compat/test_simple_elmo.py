"""Code for simple_elmo with the import changed: shapes, state, averages and substitutes, against the oracle."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import oracle
import pytest
from golden import FIXTURES, golden_batches

from elmo.compat.simple_elmo import ElmoModel
from elmo.errors import ConfigError, WeightsError

VOCAB = ["<S>", "</S>", "<UNK>", "the", "bank", "of", "river", "was", ".", "one", "steep"]
SENTENCES = [["the", "bank", "of", "the", "river"], ["one"], [], ["steep", "."]]


def small_batches(**options) -> ElmoModel:
    model = ElmoModel()
    model.load(FIXTURES / "allennlp" / "lm_weights.hdf5", max_batch_size=3, **options)
    return model


@pytest.fixture(scope="module")
def full_model(tmp_path_factory):
    """A folder with the fixture's biLM and a random softmax over VOCAB, and the weights of the softmax."""
    folder = tmp_path_factory.mktemp("full")
    for name in ("options.json", "lm_weights.hdf5"):
        shutil.copy(FIXTURES / "allennlp" / name, folder)
    rng = np.random.default_rng(3)
    W, b = rng.normal(size=(len(VOCAB), 16)).astype(np.float32), rng.normal(size=len(VOCAB)).astype(np.float32)
    with h5py.File(folder / "softmax_weights.hdf5", "w") as file:
        file["softmax/W"], file["softmax/b"] = W, b
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return folder, W, b


def oracle_layers(batches: list[list[list[str]]]) -> list[np.ndarray]:
    """Layers (L+1, n, D) of the sentences of the last batch, with the state of the batches before it."""
    options, weights = oracle.load(FIXTURES / "allennlp" / "options.json", FIXTURES / "allennlp" / "lm_weights.hdf5")
    state, arrays = None, []
    for batch in batches:
        arrays, state = oracle.run(options, weights, batch, state)
    return [layers[:, 1:-1] for layers in arrays]


def test_load_sets_the_sizes():
    model = small_batches()
    assert (model.vector_size, model.n_layers, model.batch_size, model.max_chars) == (32, 3, 3, 50)


@pytest.mark.parametrize("kind", ["allennlp", "bilm-tf"])
def test_golden_batches_in_one_call(kind, tmp_path):
    shutil.copy(FIXTURES / kind / "options.json", tmp_path)
    shutil.copy(FIXTURES / kind / "lm_weights.hdf5", tmp_path / "model.hdf5")
    model = ElmoModel()
    model.load(str(tmp_path), max_batch_size=3)
    batches = list(golden_batches(kind))
    texts = [sentence for batch, _ in batches for sentence in batch]
    vectors = model.get_elmo_vectors(texts, warmup=False, layers="top")
    assert vectors.shape == (30, max(map(len, texts)), 32)
    for row, top in enumerate(top for _, tops in batches for top in tops):
        np.testing.assert_allclose(vectors[row, : len(top)], top, rtol=0, atol=2e-6)
        assert not vectors[row, len(top) :].any()


def test_layers_argument_determines_the_shape():
    model = small_batches()
    every = model.get_elmo_vectors(SENTENCES, layers="all")
    assert every.shape == (4, 3, 5, 32)
    np.testing.assert_allclose(model.get_elmo_vectors(SENTENCES), every.mean(axis=1), atol=1e-6)
    np.testing.assert_array_equal(model.get_elmo_vectors(SENTENCES, layers="top"), every[:, 2])
    assert not every[1, :, 1:].any()
    with pytest.raises(ConfigError, match="sum"):
        model.get_elmo_vectors(SENTENCES, layers="sum")


def test_calls_start_from_a_zero_state_and_warm_up_on_the_first_batch():
    model = small_batches()
    texts = [["a", "b"], ["c"], ["d", "e"], ["f"]]
    cold = model.get_elmo_vectors(texts, warmup=False, layers="all")
    np.testing.assert_array_equal(model.get_elmo_vectors(texts, warmup=False, layers="all"), cold)
    np.testing.assert_allclose(cold[0, :, :2], oracle_layers([texts[:3]])[0], atol=1e-5)
    warm = model.get_elmo_vectors(texts, layers="all")
    np.testing.assert_allclose(warm[0, :, :2], oracle_layers([texts[:3], texts[:3]])[0], atol=1e-5)
    np.testing.assert_allclose(warm[3, :, :1], oracle_layers([texts[:3], texts[:3], texts[3:]])[0], atol=1e-5)


def test_a_session_continues_from_the_previous_state():
    model = small_batches()
    model.get_elmo_vectors([["a"]], warmup=False)
    later = model.get_elmo_vectors([["b", "c"]], warmup=False, layers="all", session=object())
    np.testing.assert_allclose(later[0], oracle_layers([[["a"]], [["b", "c"]]])[0], atol=1e-5)


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_average_is_over_the_tokens_of_the_sentence_only(layers):
    model = small_batches()
    averages = model.get_elmo_vector_average(SENTENCES, layers=layers)
    vectors = model.get_elmo_vectors(SENTENCES, layers=layers)
    for row, tokens in enumerate(SENTENCES):
        if tokens:
            mean = vectors[row, ..., : len(tokens), :].mean(axis=-2)
            np.testing.assert_allclose(averages[row], mean / np.linalg.norm(mean), atol=1e-6)
            assert np.linalg.norm(averages[row]) == pytest.approx(1, abs=1e-5)
        else:
            assert not averages[row].any()


def test_a_zip_and_a_folder_can_be_loaded(tmp_path):
    with zipfile.ZipFile(tmp_path / "9.zip", "w") as archive:
        archive.write(FIXTURES / "allennlp" / "options.json", "options.json")
        archive.write(FIXTURES / "allennlp" / "lm_weights.hdf5", "model.hdf5")
    expected = small_batches().get_elmo_vectors(SENTENCES)
    folder = tmp_path / "folder"
    shutil.copytree(FIXTURES / "allennlp", folder)  # it contains other HDF5 files
    (folder / "lm_weights.hdf5").rename(folder / "model.hdf5")
    for path in (tmp_path / "9.zip", folder):
        model = ElmoModel()
        model.load(str(path), max_batch_size=3)
        np.testing.assert_array_equal(model.get_elmo_vectors(SENTENCES), expected)


def test_strings_are_refused_and_a_model_must_be_loaded():
    with pytest.raises(TypeError, match="split it"):
        small_batches().get_elmo_vectors(["the bank", "of the river"])
    with pytest.raises(ConfigError, match="No model"):
        ElmoModel().get_elmo_vectors(SENTENCES)
    with pytest.raises(ConfigError, match="softmax"):
        small_batches().get_elmo_substitutes(["the bank"])
    with pytest.raises(WeightsError, match="no softmax"):
        small_batches(full=True)


def log_softmax(scores: np.ndarray) -> np.ndarray:
    return scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()


@pytest.mark.parametrize("nodelimiters", [True, False])
def test_substitutes_are_the_predictions_of_each_direction(full_model, nodelimiters):
    folder, W, b = full_model
    model = ElmoModel()
    model.load(folder, max_batch_size=2, full=True)
    assert model.vocab.size == len(VOCAB)
    texts = ["the bank of the river was steep .", "one", "", "the unheard-of river"]
    substitutes = model.get_elmo_substitutes(texts, topn=4, nodelimiters=nodelimiters)
    assert [[word["word"] for word in sentence] for sentence in substitutes] == [text.split() for text in texts]
    options, weights = oracle.load(folder / "options.json", folder / "lm_weights.hdf5")
    rows, _ = oracle.run(options, weights, [text.split() for text in texts])
    for layers, sentence in zip(rows, substitutes, strict=True):
        for position, word in enumerate(sentence):
            forward, backward = layers[-1, position, :16], layers[-1, position + 2, 16:]
            for direction, state in (("forward", forward), ("backward", backward)):
                logs = log_softmax(W @ state + b)
                best = [i for i in np.argsort(-logs) if not nodelimiters or i > 1][:4]
                assert word[direction]["candidates"] == best
                assert word[direction]["candidate_words"] == [model.vocab.id_to_word(i) for i in best]
                np.testing.assert_allclose(word[direction]["logp"], logs[best], atol=2e-4)


def test_more_substitutes_than_words_gives_all_words(full_model):
    model = ElmoModel()
    model.load(full_model[0], full=True)
    ((word,),) = model.get_elmo_substitutes(["one"], topn=model.vocab.size)
    assert sorted(word["forward"]["candidate_words"]) == sorted(VOCAB[2:])
    with pytest.raises(TypeError, match="list"):
        model.get_elmo_substitutes("one string")
    assert model.vocab.word_to_id("river") == VOCAB.index("river")


def test_full_reads_the_checkpoint_of_a_folder_that_has_one(tmp_path):
    source = Path(__file__).parents[1] / "fixtures" / "tf_checkpoint" / "bilm"
    for path in source.iterdir():
        shutil.copy(path, tmp_path)
    options = {
        "lstm": {"dim": 12, "projection_dim": 6, "n_layers": 2, "cell_clip": 3, "proj_clip": 3},
        "char_cnn": {
            "activation": "relu", "embedding": {"dim": 3}, "filters": [[1, 4], [2, 4], [3, 8]],
            "max_characters_per_token": 50, "n_characters": 261, "n_highway": 2,
        },
    }  # fmt: skip
    oracle.write(tmp_path, options, {"not/this": np.zeros(1)})  # a damaged HDF5 file in the same folder is not read
    words = ["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(17))]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    model = ElmoModel()
    model.load(tmp_path, full=True)
    ((first, second),) = model.get_elmo_substitutes(["w3 w4"])
    assert first["word"] == "w3"
    assert len(second["backward"]["candidates"]) == 3
    assert model.get_elmo_vectors([["w3", "w4"]]).shape == (1, 2, 12)
