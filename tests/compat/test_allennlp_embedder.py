"""AllenNLP's ElmoEmbedder and the files of `allennlp elmo`: golden vectors, formats, keys, errors."""

from __future__ import annotations

import io
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from golden import FIXTURES, golden_batches

from elmo.compat.allennlp import ElmoEmbedder, batch_to_ids
from elmo.errors import ConfigError, DataError, WeightsError

FILES = (str(FIXTURES / "allennlp" / "options.json"), str(FIXTURES / "allennlp" / "lm_weights.hdf5"))
LINES = ["Michael went to the store to buy some eggs .", "Joel rode the train .", "One .", "Two of them ."]


def read(path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {key: file[key][...] for key in file}


def test_embed_sentences_gives_the_golden_vectors():
    batches = list(golden_batches("allennlp"))
    sentences = (sentence for batch, _ in batches for sentence in batch)
    expected = [top for _, tops in batches for top in tops]
    stream = ElmoEmbedder(*FILES).embed_sentences(sentences, batch_size=3)
    for vectors, top in zip(stream, expected, strict=True):
        assert vectors.shape == (3, len(top), 32)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors[2], top, rtol=0, atol=2e-6)


def test_embed_sentences_takes_an_endless_iterable():
    def endless():
        while True:
            yield ["hello", "."]

    stream = ElmoEmbedder(*FILES).embed_sentences(endless(), batch_size=2)
    assert [next(stream).shape for _ in range(5)] == [(3, 2, 32)] * 5


def test_embed_sentence_depends_on_the_previous_one_unless_stateful_is_off():
    embedder, sentence = ElmoEmbedder(*FILES), ["hello", "my", "name", "is", "mud", "."]
    first, second = (embedder.embed_sentence(sentence) for _ in range(2))
    assert np.abs(first[2] - second[2]).max() > 1e-3
    np.testing.assert_array_equal(first[0], second[0])  # the token layer has no context
    embedder.elmo_bilm._elmo_lstm.stateful = False
    third, fourth = (embedder.embed_sentence(sentence) for _ in range(2))
    np.testing.assert_array_equal(third, fourth)
    np.testing.assert_array_equal(third, first)


def test_batch_to_embeddings_gives_layers_and_mask():
    layers, mask = ElmoEmbedder(*FILES).batch_to_embeddings([["a", "b", "c"], ["d"]])
    assert layers.shape == (2, 3, 3, 32)
    assert mask.tolist() == [[True, True, True], [True, False, False]]
    assert not layers[1, :, 1:].any()
    assert not layers.requires_grad


def test_empty_sentences_have_the_width_of_the_model():
    embedder = ElmoEmbedder(*FILES)
    assert embedder.embed_sentence([]).shape == (3, 0, 32)
    assert embedder.elmo_bilm._elmo_lstm._states is None
    assert [v.shape for v in embedder.embed_batch([[], ["a", "b"], []])] == [(3, 0, 32), (3, 2, 32), (3, 0, 32)]
    assert embedder.embed_batch([]) == []


def test_words_instead_of_a_sentence_are_refused():
    with pytest.raises(TypeError, match="expected a sentence"):
        ElmoEmbedder(*FILES).embed_sentence("a string")
    with pytest.raises(TypeError, match="expected a sentence"):
        ElmoEmbedder(*FILES).embed_batch(["one", "two"])


@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_embed_file_writes_the_vectors_of_embed_sentences(tmp_path, output_format, batch_size):
    path = tmp_path / "out.hdf5"
    text = io.StringIO("".join(f"  {line} \n" for line in LINES))
    ElmoEmbedder(*FILES).embed_file(text, path, output_format, batch_size=batch_size)
    datasets = read(path)
    expected = list(ElmoEmbedder(*FILES).embed_sentences([line.split() for line in LINES], batch_size))
    assert set(datasets) == {"0", "1", "2", "3", "sentence_to_index"}
    for number, layers in enumerate(expected):
        vectors = {"all": layers, "top": layers[2], "average": layers.mean(axis=0)}[output_format]
        assert datasets[str(number)].dtype == np.float32
        np.testing.assert_allclose(datasets[str(number)], vectors, rtol=0, atol=1e-6)


def test_embed_file_stores_an_index_with_the_last_of_equal_lines(tmp_path):
    path = tmp_path / "out.hdf5"
    ElmoEmbedder(*FILES).embed_file([*LINES, LINES[0], "naïve 漢字"], path)
    datasets = read(path)
    assert datasets["sentence_to_index"].shape == (1,)
    index = json.loads(datasets["sentence_to_index"][0])
    assert index == {LINES[0]: "4", LINES[1]: "1", LINES[2]: "2", LINES[3]: "3", "naïve 漢字": "5"}
    assert datasets["0"].shape == datasets["4"].shape


def test_embed_file_without_an_index(tmp_path):
    ElmoEmbedder(*FILES).embed_file(LINES, tmp_path / "out.hdf5", forget_sentences=True)
    assert set(read(tmp_path / "out.hdf5")) == {"0", "1", "2", "3"}


def test_embed_file_can_use_lines_as_keys(tmp_path):
    ElmoEmbedder(*FILES).embed_file(LINES, tmp_path / "out.hdf5", use_sentence_keys=True)
    datasets = read(tmp_path / "out.hdf5")
    assert set(datasets) == set(LINES)
    np.testing.assert_array_equal(datasets[LINES[0]], ElmoEmbedder(*FILES).embed_batch([l.split() for l in LINES])[0])


@pytest.mark.parametrize("lines", [["a b", "c", "a b"], ["."], ["a b", "a b/c"]])
def test_lines_that_cannot_be_keys_leave_no_file(tmp_path, lines):
    with pytest.raises(DataError, match="cannot name a dataset"):
        ElmoEmbedder(*FILES).embed_file(lines, tmp_path / "out.hdf5", use_sentence_keys=True)
    assert list(tmp_path.iterdir()) == []


def test_error_for_blank_lines_names_their_numbers(tmp_path):
    with pytest.raises(DataError, match=r"\[1, 3\]"):
        ElmoEmbedder(*FILES).embed_file(["a", "  ", "b", "\n"], tmp_path / "out.hdf5")
    with pytest.raises(ConfigError, match="best"):
        ElmoEmbedder(*FILES).embed_file(["a"], tmp_path / "out.hdf5", output_format="best")
    assert list(tmp_path.iterdir()) == []


def test_without_files_it_is_the_original_model(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_HOME", str(tmp_path))
    with pytest.raises(WeightsError, match="'original' is not on this machine"):
        ElmoEmbedder()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_an_error():
    with pytest.raises(ConfigError, match="cuda:0"):
        ElmoEmbedder(*FILES, cuda_device=0)


def test_odd_tokens_are_embedded():
    tokens = ["", "\ud800", "x" * 300, "<UNK>", "🙂"]
    assert (batch_to_ids([tokens])[0] > 0).any(dim=-1).all()
    assert np.isfinite(ElmoEmbedder(*FILES).embed_sentence(tokens)).all()


@pytest.mark.parametrize("kind", [str, Path])
def test_embed_file_refuses_a_path_and_does_not_embed_its_letters(tmp_path, kind):
    (tmp_path / "in.txt").write_text("One .\n")
    with pytest.raises(TypeError, match=r"input_file is the path '.*in\.txt'; expected lines, such as open\("):
        ElmoEmbedder(*FILES).embed_file(kind(tmp_path / "in.txt"), tmp_path / "out.hdf5")
    assert not (tmp_path / "out.hdf5").exists()
