"""The table of tensor names is reversible and complete, and its sizes are the published ones."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import oracle
import pytest
import torch

from elmo.errors import WeightsError
from elmo.model.bilm import BiLM
from elmo.model.config import PRESETS, BiLMConfig, CharConfig, HeadConfig, LSTMConfig, WordConfig
from elmo.weights.names import from_arrays, from_published, match_names, tensor_specs, to_published
from elmo.weights.options import config_from_options

sizes = st.integers(1, 5)


@st.composite
def configs(draw: st.DrawFn) -> BiLMConfig:
    chars = st.builds(
        CharConfig,
        num_chars=st.integers(1, 9),
        char_dim=sizes,
        max_chars=st.integers(5, 9),
        filters=st.lists(st.tuples(sizes, sizes), min_size=1, max_size=3).map(tuple),
        num_highways=st.integers(0, 2),
    )
    words = st.builds(WordConfig, num_words=sizes, word_dim=sizes)
    lstm = st.builds(LSTMConfig, num_layers=st.integers(1, 4), cell_dim=sizes, proj_dim=sizes)
    head = st.none() | st.builds(HeadConfig, vocab_size=sizes)
    reads = draw(st.sampled_from(["chars", "words", "both"]))
    return BiLMConfig(
        chars=draw(chars) if reads != "words" else None,
        words=draw(words) if reads != "chars" else None,
        lstm=draw(lstm),
        bidirectional=draw(st.booleans()),
        head=draw(head),
    )


@hypothesis.given(configs(), st.integers(0, 2**32 - 1))
def test_from_published_to_published_is_identity(config, seed):
    rng = np.random.default_rng(seed)
    for spec in tensor_specs(config):
        array = rng.standard_normal(spec.published_shape).astype(np.float32)
        tensor = from_published(spec, array)
        assert to_published(spec, tensor).tobytes() == array.tobytes()
        assert torch.equal(from_published(spec, to_published(spec, tensor)), tensor)


@hypothesis.given(configs())
def test_table_names_every_tensor_of_the_network_and_no_other(config):
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in BiLM(config).state_dict().items()}
    shapes = {
        spec.name: tuple(from_published(spec, np.zeros(spec.published_shape, np.float32)).shape)
        for spec in tensor_specs(config)
    }
    assert shapes == expected
    assert len({spec.published_name for spec in tensor_specs(config)}) == len(expected)


@hypothesis.given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_table_has_the_oracle_s_names_and_shapes(seed, bidirectional, dumped):
    options, weights = oracle.random_model(
        np.random.default_rng(seed), bidirectional=bidirectional, dumped_names=dumped
    )
    config = config_from_options(options, "options", num_words=None if "char_cnn" in options else 11)
    matches = match_names(tensor_specs(config), {name: array.shape for name, array in weights.items()}, "file")
    assert {name: spec.published_shape for spec, name in matches} == {
        name: array.shape for name, array in weights.items()
    }
    assert set(from_arrays(config, weights, "file")) == {spec.name for spec, _ in matches}


@pytest.mark.parametrize(
    ("preset", "number"), [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)]
)
def test_presets_have_the_published_number_of_parameters(preset, number):
    assert sum(math.prod(spec.published_shape) for spec in tensor_specs(PRESETS[preset])) == number


def test_match_names_what_is_missing_and_what_is_misshapen():
    specs = tensor_specs(PRESETS["tiny"])
    shapes = {spec.published_name: spec.published_shape for spec in specs}
    with pytest.raises(WeightsError, match=r"no 'CNN_proj/W_proj' \(expected shape \(128, 64\)\)"):
        match_names(specs, {name: shape for name, shape in shapes.items() if name != "CNN_proj/W_proj"}, "w")
    with pytest.raises(WeightsError, match=r"'CNN_proj/W_proj' has shape \(64, 128\); the options say \(128, 64\)"):
        match_names(specs, shapes | {"CNN_proj/W_proj": (64, 128)}, "w")
    with pytest.raises(WeightsError, match="'other' has no place in the model"):
        match_names(specs, shapes | {"other": (3,)}, "w")
