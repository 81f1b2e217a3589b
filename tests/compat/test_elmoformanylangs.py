"""Code for ELMoForManyLangs with the import changed, on random models in that project's format."""

from __future__ import annotations

import numpy as np
import pytest
from golden import FIXTURES
from peer_models import SENTENCES, manylangs_layers, random_manylangs, write_manylangs

from elmo.compat.elmoformanylangs import Embedder
from elmo.errors import ConfigError


@pytest.mark.parametrize(("words", "chars"), [(True, True), (False, True), (True, False)])
def test_output_layers_agree_with_the_format(tmp_path, words, chars):
    options, weights = random_manylangs(3, words=words, chars=chars)
    embedder = Embedder(write_manylangs(tmp_path / "model", options, weights), batch_size=2)
    expected = [manylangs_layers(options, weights, tokens) for tokens in SENTENCES]
    for output_layer, choose in (
        (-2, lambda layers: layers), (-1, lambda layers: layers.mean(axis=0)), (0, lambda layers: layers[0]),
        (1, lambda layers: layers[1]), (2, lambda layers: layers[2]),
    ):  # fmt: skip
        results = embedder.sents2elmo(SENTENCES, output_layer=output_layer)
        assert len(results) == len(SENTENCES)
        for vectors, layers in zip(results, expected, strict=True):
            np.testing.assert_allclose(vectors, choose(layers), rtol=0, atol=2e-6)  # float32 against float64


def test_the_default_is_the_mean_and_a_second_call_gives_the_same(tmp_path):
    embedder = Embedder(write_manylangs(tmp_path, *random_manylangs()))
    first, second = embedder.sents2elmo(SENTENCES), embedder.sents2elmo(SENTENCES)
    for a, b, tokens in zip(first, second, SENTENCES, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.shape == (len(tokens), 8)
    assert embedder.sents2elmo([]) == []
    assert embedder.sents2elmo([[]])[0].shape == (0, 8)


def test_other_models_work_too():
    embedder = Embedder(str(FIXTURES / "allennlp" / "lm_weights.hdf5"))
    assert [vectors.shape for vectors in embedder.sents2elmo([["a", "b"], ["c"]], -2)] == [(3, 2, 32), (3, 1, 32)]


def test_wrong_inputs_are_refused(tmp_path):
    embedder = Embedder(write_manylangs(tmp_path, *random_manylangs()))
    for output_layer in (3, -3):
        with pytest.raises(ConfigError, match=f"output_layer is {output_layer}; expected 0 to 2"):
            embedder.sents2elmo(SENTENCES, output_layer)
    with pytest.raises(TypeError, match="is the string 'the cat'"):
        embedder.sents2elmo(["the cat"])
    with pytest.raises(ConfigError, match="batch_size is 0"):
        Embedder(tmp_path, batch_size=0)
