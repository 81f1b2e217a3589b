"""Vector sources of the probes (models and static files), and the cached arrays of their vectors."""

from __future__ import annotations

import numpy as np
import pytest
from rule_vectors import RuleVectors

import elmo
from elmo.errors import ConfigError, DataError
from elmo.probes.features import corpus_vectors
from elmo.probes.vector_source import ModelVectors, read_static_vectors


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_model_vectors_have_all_layers_and_an_identity():
    embedder = elmo.load("tiny-random", device="cpu")
    source = ModelVectors(embedder)
    sentences = [["The", "cat"], [], ["sat", "."]]
    for layers, expected in zip(source.layers(sentences), embedder.layers(sentences), strict=True):
        np.testing.assert_array_equal(layers, expected)
    identity = source.identity()
    assert (identity["name"], identity["layers"], identity["dim"]) == ("tiny-random", 3, 128)
    assert identity["sha256"] == ModelVectors(elmo.load("tiny-random")).identity()["sha256"]


def test_model_with_carried_state_is_refused():
    with pytest.raises(ConfigError, match="carry"):
        ModelVectors(elmo.load("tiny-random", state="carry"))


@pytest.mark.parametrize("header", ["3 2\n", ""])
def test_static_vectors_with_and_without_a_header(tmp_path, header):
    source = read_static_vectors(write(tmp_path / "a.vec", f"{header}the 1 2\n. . 3 4\ncat 5 6 \n"))
    assert (source.num_layers, source.dim) == (1, 2)
    (layers,) = source.layers([["cat", "The", "dog", ". ."]])
    np.testing.assert_array_equal(layers, [[[5, 6], [1, 2], [0, 0], [3, 4]]])


def test_an_invalid_line_of_static_vectors_is_an_error_with_its_number(tmp_path):
    with pytest.raises(DataError, match=r"a\.vec:3: 1 numbers"):
        read_static_vectors(write(tmp_path / "a.vec", "2 2\nthe 1 2\ncat 5\n"))
    with pytest.raises(DataError, match=r"a\.vec:2: could not"):
        read_static_vectors(write(tmp_path / "a.vec", "2 2\nthe 1 x\n"))
    with pytest.raises(DataError, match=r"a\.vec:1: no numbers after the word; expected word2vec's text format"):
        read_static_vectors(write(tmp_path / "a.vec", "the\ncat\n"))
    with pytest.raises(DataError, match="no vectors"):
        read_static_vectors(write(tmp_path / "a.vec", ""))


def test_corpus_vectors_are_in_the_order_of_the_words(tmp_path):
    source = RuleVectors(lambda s, i: [[len(s[i]), i], [-len(s[i]), 10 * i]], 2, 2)
    sentences = [["a", "bb"], [], ["ccc"]]
    expected = [[[1, 0], [-1, 0]], [[2, 1], [-2, 10]], [[3, 0], [-3, 0]]]
    np.testing.assert_array_equal(corpus_vectors(source, sentences), expected)
    computed = corpus_vectors(source, sentences, cache=tmp_path / "cache")
    cached = corpus_vectors(source, sentences, cache=tmp_path / "cache")
    assert source.calls == 2, "the third call reads the cache file"
    assert computed.dtype == np.float16
    np.testing.assert_array_equal(computed, expected)
    np.testing.assert_array_equal(cached, expected)
    corpus_vectors(source, [["a", "b"]], cache=tmp_path / "cache")
    assert source.calls == 3, "other sentences have another cache file"


def test_a_damaged_cache_file_is_an_error(tmp_path):
    source = RuleVectors(lambda s, i: [[i, i]], 1, 2)
    corpus_vectors(source, [["a", "b"]], cache=tmp_path)
    (file,) = tmp_path.iterdir()
    for damage in (b"", file.read_bytes()[:-1], b"no array at all"):
        file.write_bytes(damage)
        with pytest.raises(DataError, match="damaged"):
            corpus_vectors(source, [["a", "b"]], cache=tmp_path)
    np.save(file, np.zeros((2, 1, 2)))
    with pytest.raises(DataError, match="expected float16"):
        corpus_vectors(source, [["a", "b"]], cache=tmp_path)


def test_vectors_too_large_for_float16_are_an_error():
    with pytest.raises(DataError, match="float16"):
        corpus_vectors(RuleVectors(lambda s, i: [[1e6]], 1, 1), [["a"]])
    with pytest.raises(DataError, match="float16"):
        corpus_vectors(RuleVectors(lambda s, i: [[float("nan")]], 1, 1), [["a"]])
