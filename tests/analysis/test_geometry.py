"""Geometry from sums of unit vectors agrees with cosines of all pairs, one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import elmo
from elmo.analysis.geometry import layer_geometry
from elmo.errors import ConfigError, DataError

SENTENCES = [
    ["the", "cat", "saw", "the", "dog"],
    [],
    ["a", "dog", "saw", "a", "cat"],
    ["the", "dog", "."],
]


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_geometry_agrees_with_all_pairs_one_by_one():
    embedder = elmo.load("tiny-random", device="cpu")
    layers = embedder.layers(SENTENCES)
    words = ["a", "cat", "dog", "saw", "the"]  # those that occur twice or more
    for geometry in layer_geometry(embedder, SENTENCES, min_count=2):
        vectors = {
            word: [
                v[geometry.layer, i]
                for s, v in zip(SENTENCES, layers, strict=True)
                for i, t in enumerate(s)
                if t == word
            ]
            for word in words
        }
        own = [np.mean([cosine(a, b) for a, b in itertools.combinations(vectors[word], 2)]) for word in words]
        assert geometry.self_similarity == pytest.approx(np.mean(own), abs=1e-5)
        other = [
            np.mean([cosine(a, b) for a in vectors[one] for b in vectors[two]])
            for one, two in itertools.combinations(words, 2)
        ]
        assert geometry.anisotropy == pytest.approx(np.mean(other), abs=1e-5)
        filled = [v[geometry.layer] for v in layers if v.shape[1]]
        within = [np.mean([cosine(row, v.mean(0)) for row in v]) for v in filled]
        assert geometry.sentence_similarity == pytest.approx(np.mean(within), abs=1e-5)
        assert geometry.norm == pytest.approx(np.mean(np.linalg.norm(np.concatenate(filled), axis=-1)), rel=1e-5)


def test_the_token_layer_has_no_context():
    first = layer_geometry(elmo.load("tiny-random", device="cpu"), SENTENCES, min_count=2)[0]
    assert first.self_similarity == pytest.approx(1.0, abs=1e-5)


def test_the_sample_of_words_is_the_same_for_a_seed():
    embedder = elmo.load("tiny-random", device="cpu")
    once, again = (layer_geometry(embedder, SENTENCES, min_count=2, max_words=3, seed=1) for _ in range(2))
    assert once == again


def test_too_little_text_is_an_error():
    embedder = elmo.load("tiny-random", device="cpu")
    with pytest.raises(DataError, match="0 words occur 5 times") as caught:
        layer_geometry(embedder, SENTENCES)
    assert "--min-count (in Python min_count)" in caught.value.hint
    with pytest.raises(ConfigError, match="min_count"):
        layer_geometry(embedder, SENTENCES, min_count=1)
