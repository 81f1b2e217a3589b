"""The table of names: reversible, complete, and of the published sizes."""

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
from elmo.weights.names import extra_names, from_arrays, match, table, to_ours, to_published
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
def test_ours_to_published_to_ours_is_identity(config, seed):
    rng = np.random.default_rng(seed)
    for entry in table(config):
        array = rng.standard_normal(entry.shape).astype(np.float32)
        there = to_ours(entry, array)
        assert to_published(entry, there).tobytes() == array.tobytes()
        assert torch.equal(to_ours(entry, to_published(entry, there)), there)


@hypothesis.given(configs())
def test_table_names_every_tensor_of_the_network_and_no_other(config):
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in BiLM(config).state_dict().items()}
    ours = {e.ours: tuple(to_ours(e, np.zeros(e.shape, np.float32)).shape) for e in table(config)}
    assert ours == expected
    assert len({e.published for e in table(config)}) == len(expected)


@hypothesis.given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_table_has_the_oracle_s_names_and_shapes(seed, bidirectional, dumped):
    options, weights = oracle.random_model(
        np.random.default_rng(seed), bidirectional=bidirectional, dumped_names=dumped
    )
    config = config_from_options(options, "options", num_words=None if "char_cnn" in options else 11)
    matched = match(table(config), {name: array.shape for name, array in weights.items()}, "file")
    assert {name: entry.shape for entry, name in matched} == {name: array.shape for name, array in weights.items()}
    assert set(from_arrays(config, weights, "file")) == {entry.ours for entry, _ in matched}


@pytest.mark.parametrize(
    ("preset", "number"), [("small", 13_593_296), ("medium", 28_027_728), ("original", 93_600_848)]
)
def test_presets_have_the_published_number_of_parameters(preset, number):
    assert sum(math.prod(entry.shape) for entry in table(PRESETS[preset])) == number


def test_match_names_what_is_missing_and_what_is_misshapen():
    entries = table(PRESETS["tiny"])
    shapes = {entry.published: entry.shape for entry in entries}
    with pytest.raises(WeightsError, match=r"no 'CNN_proj/W_proj' \(wanted shape \(128, 64\)\)"):
        match(entries, {name: shape for name, shape in shapes.items() if name != "CNN_proj/W_proj"}, "w")
    with pytest.raises(WeightsError, match=r"'CNN_proj/W_proj' has shape \(64, 128\); the options say \(128, 64\)"):
        match(entries, shapes | {"CNN_proj/W_proj": (64, 128)}, "w")
    assert extra_names(match(entries, shapes | {"other": (3,)}, "w"), [*shapes, "other"]) == ["other"]
