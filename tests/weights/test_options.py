"""options.json: everything that published files contain is read; impossible values are clear errors."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import time

import hypothesis
import hypothesis.strategies as st
import pytest

from elmo.errors import ConfigError, ElmoError, WeightsError
from elmo.files import parse_json, read_json
from elmo.model.config import PRESETS, BiLMConfig, CharConfig, LSTMConfig, WordConfig
from elmo.weights.options import config_from_options, options_from_config

PUBLISHED = options_from_config(PRESETS["small"])


def changed(path: str, value: object) -> dict:
    options = copy.deepcopy(PUBLISHED)
    *sections, key = path.split(".")
    section = options
    for name in sections:
        section = section[name]
    section[key] = value
    return options


@pytest.mark.parametrize(
    ("path", "value", "texts"),
    [
        ("lstm.n_layers", 1e9, ["lstm.n_layers", "1000000000", "1 to 100"]),
        ("lstm.n_layers", 10**9, ["lstm.n_layers", "1000000000", "1 to 100"]),
        ("lstm.n_layers", 0, ["lstm.n_layers", "1 to 100"]),
        ("lstm.dim", -4, ["lstm.dim", "-4"]),
        ("lstm.dim", "4096", ["lstm.dim", "integer"]),
        ("lstm.dim", True, ["lstm.dim", "integer"]),
        ("lstm.dim", 10**4000, ["lstm.dim", "integer"]),
        ("lstm.projection_dim", None, ["lstm.projection_dim", "missing"]),
        ("lstm.cell_clip", -1.0, ["cell_clip", "-1.0", "positive"]),
        ("lstm.proj_clip", "3", ["proj_clip", "number"]),
        ("lstm.use_skip_connections", 1, ["use_skip_connections", "true or false"]),
        ("lstm", [], ["'lstm'", "object"]),
        ("char_cnn", 3, ["'char_cnn'", "object"]),
        ("char_cnn.n_characters", 300, ["n_characters", "300", "261 or 262"]),
        ("char_cnn.max_characters_per_token", 2, ["max_characters_per_token", "3 to 10,000"]),
        ("char_cnn.filters", [[1, 32], [2]], ["filters", "pairs"]),
        ("char_cnn.filters", [[51, 32]], ["width", "51", "1 to 50"]),
        ("char_cnn.filters", [[1, -3]], ["count", "-3"]),
        ("char_cnn.filters", [], ["filters"]),
        ("char_cnn.embedding", 16, ["char_cnn.embedding", "dim"]),
        ("char_cnn.activation", "gelu", ["gelu", "relu or tanh"]),
        ("char_cnn.activation", ["relu"], ["relu or tanh"]),
        ("char_cnn.n_highway", 101, ["n_highway", "0 to 100"]),
        ("bidirectional", "yes", ["bidirectional", "true or false"]),
        ("forget_bias", 1e999, ["forget_bias", "finite"]),
        ("forget_bias", 10**400, ["forget_bias", "1e+30"]),
        ("lstm.cell_clip", 1e308, ["cell_clip", "1e+30"]),
        ("lstm.cell_clip", 10**400, ["cell_clip", "1e+30"]),
        ("lstm.proj_clip", 1e-320, ["proj_clip", "1e-30"]),
    ],
)
def test_error_for_an_impossible_setting_names_it_and_its_range(path, value, texts):
    with pytest.raises(WeightsError) as error:
        config_from_options(changed(path, value), "my/options.json")
    assert all(text in str(error.value) for text in ["my/options.json", *texts]), error.value
    assert len(str(error.value)) < 500


def test_too_many_parameters_are_refused():
    options = changed("lstm.dim", 1 << 20)
    options["lstm"]["projection_dim"] = 1 << 20
    with pytest.raises(WeightsError, match="parameters"):
        config_from_options(options, "options.json")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1, 2]", "holds a list"),
        (b'{"lstm": NaN}', "NaN"),
        (b'{"lstm": -Infinity}', "Infinity"),
        (b'{"lstm": {}, "lstm": {}}', "'lstm' occurs 2 times"),
        (b"[" * 100_000, "JSON|nested"),
        (b'{"a":' * 100_000, "JSON|nested"),
        (b'{"a": ' + b"7" * 5_000 + b"}", "not valid JSON"),
        (json.dumps(PUBLISHED).encode("utf-16"), "not valid JSON"),
        (b"\x80\x02cos\nsystem\n", "not valid JSON"),
    ],
)
def test_hostile_json_is_a_weights_error(data, word):
    with pytest.raises(WeightsError, match=word):
        parse_json(data, "options.json", error=WeightsError)


def test_duplicate_among_many_keys_is_refused_quickly():
    data = "{" + ",".join(f'"k{i}":0' for i in range(60_000)) + ',"k59999":0}'
    start = time.process_time()
    with pytest.raises(WeightsError, match="k59999"):
        parse_json(data.encode(), "options.json", error=WeightsError)
    assert time.process_time() - start < 2


KEYS = st.sampled_from(["lstm", "char_cnn", "dim", "projection_dim", "n_layers", "filters", "embedding"])
LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text()


@hypothesis.given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_any_json_value_is_a_config_or_a_weights_error(value):
    options = value if isinstance(value, dict) else {"lstm": value, "char_cnn": value}
    with contextlib.suppress(WeightsError):
        assert isinstance(config_from_options(options, "options.json"), BiLMConfig)


def test_file_too_large_missing_or_not_regular(tmp_path):
    large = tmp_path / "options.json"
    large.write_bytes(b" " * ((1 << 20) + 1))
    for path, word in (
        (large, "expected at most"),
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "not a regular file"),
    ):
        with pytest.raises(WeightsError, match=word):
            read_json(path, error=WeightsError)


@pytest.mark.skipif(os.name == "nt", reason="no fifo")
def test_fifo_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "options.json")
    with pytest.raises(WeightsError, match="not a regular file"):
        read_json(tmp_path / "options.json", error=WeightsError)


def test_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "options.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(PUBLISHED).encode())
    assert config_from_options(read_json(tmp_path / "options.json"), "o") == PRESETS["small"]


@pytest.mark.parametrize("number", [261, 262])
def test_261_and_262_characters_are_the_same_model(number):
    assert config_from_options(changed("char_cnn.n_characters", number), "o") == PRESETS["small"]


def test_missing_settings_have_the_defaults_of_bilm_tf():
    options = copy.deepcopy(PUBLISHED)
    for key in ("n_layers", "use_skip_connections", "cell_clip", "proj_clip"):
        del options["lstm"][key]
    for key in ("n_highway", "n_characters", "max_characters_per_token"):
        del options["char_cnn"][key]
    config = config_from_options(options, "o")
    assert config.lstm == LSTMConfig(
        num_layers=1, cell_dim=1024, proj_dim=128, cell_clip=None, proj_clip=None, skip=False
    )
    assert config.chars == CharConfig(num_highways=0)


def test_a_vocabulary_size_that_contradicts_the_word_table_is_refused():
    options = {"lstm": PUBLISHED["lstm"], "n_tokens_vocab": 30}
    config = config_from_options(options, "o", num_words=30)
    assert config.words == WordConfig(num_words=30, word_dim=128)
    with pytest.raises(WeightsError, match="n_tokens_vocab is 30; the model's word table has 20 rows"):
        config_from_options(options, "o", num_words=20)


def test_missing_required_setting_is_an_error():
    for section, key in (
        ("lstm", "dim"),
        ("lstm", "projection_dim"),
        ("char_cnn", "filters"),
        ("char_cnn", "embedding"),
    ):
        options = copy.deepcopy(PUBLISHED)
        del options[section][key]
        with pytest.raises(WeightsError, match=key):
            config_from_options(options, "o")


def test_unknown_settings_are_warned_about_and_training_settings_are_not(caplog):
    with caplog.at_level(logging.WARNING):
        options = PUBLISHED | {"dropout": 0.1, "n_epochs": 10, "colour": "red"}
        assert config_from_options(options, "o") == PRESETS["small"]
    warnings = " ".join(record.getMessage() for record in caplog.records)
    assert [name for name in ("colour", "dropout", "n_epochs") if name in warnings] == ["colour"]


@pytest.mark.parametrize("path", ["lstm.use_skip_connection", "char_cnn.n_highways", "char_cnn.embedding.max_norm"])
def test_unknown_settings_of_the_network_are_refused(path):
    with pytest.raises(WeightsError, match=f"my/options.json: {path} is unknown"):
        config_from_options(changed(path, 1), "my/options.json")


@pytest.mark.parametrize(
    "config",
    [
        *PRESETS.values(),
        BiLMConfig(chars=CharConfig(activation="tanh", max_chars=60, num_highways=0), bidirectional=False),
        BiLMConfig(lstm=LSTMConfig(num_layers=4, cell_dim=8, proj_dim=8, cell_clip=None, proj_clip=None, skip=False)),
    ],
)
def test_config_to_options_to_config_is_identity(config):
    assert config_from_options(json.loads(json.dumps(options_from_config(config))), "o") == config


def test_options_of_a_word_model_and_back():
    config = BiLMConfig(chars=None, words=WordConfig(num_words=7, word_dim=4), lstm=LSTMConfig(cell_dim=8, proj_dim=4))
    assert config_from_options(options_from_config(config), "o", num_words=7) == config


@pytest.mark.parametrize(
    "config",
    [
        BiLMConfig(chars=CharConfig(num_chars=99)),
        BiLMConfig(words=WordConfig(num_words=7, word_dim=4)),
        BiLMConfig(chars=None, words=WordConfig(num_words=7, word_dim=4)),
        BiLMConfig(chars=None, words=WordConfig(num_words=7, word_dim=512), project_tokens=True),
    ],
)
def test_model_that_options_cannot_describe_is_refused(config):
    with pytest.raises(ConfigError, match="another token layer"):
        options_from_config(config)


def test_word_model_without_a_word_table_is_an_error():
    options = {"lstm": PUBLISHED["lstm"]}
    with pytest.raises(ElmoError, match="no char_cnn"):
        config_from_options(options, "o")
