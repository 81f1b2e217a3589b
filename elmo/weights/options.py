"""Converts options.json, the published description of a model's shape, to BiLMConfig and back.

Impossible values are errors, and so are unknown settings of the network, which may change its vectors. Variations that
occur in published files are accepted: 261 or 262 characters, training settings in addition to the shape, missing
highways, clips and skip connections.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from elmo.errors import ConfigError, WeightsError
from elmo.model.config import LARGEST_DIM, LARGEST_NUMBER, BiLMConfig, CharConfig, LSTMConfig, WordConfig
from elmo.weights.names import stored_projections

log = logging.getLogger(__name__)

_KNOWN_KEYS = {
    "": {"lstm", "char_cnn", "bidirectional", "dropout", "all_clip_norm_val", "n_epochs", "n_train_tokens"}
    | {"batch_size", "n_tokens_vocab", "unroll_steps", "n_negative_samples_batch", "share_embedding_softmax"}
    | {"sample_softmax", "learning_rate", "n_gpus", "n_train_tokens_per_epoch", "max_token_length", "forget_bias"},
    "lstm.": {"cell_clip", "proj_clip", "dim", "n_layers", "projection_dim", "use_skip_connections"},
    "char_cnn.": {"activation", "embedding", "filters", "max_characters_per_token", "n_characters", "n_highway"},
    "char_cnn.embedding.": {"dim"},
}


def config_from_options(
    options: dict[str, Any], source: str, *, num_words: int | None = None, names: Iterable[str] = ()
) -> BiLMConfig:
    """The shape that options.json describes; `num_words` is the number of rows in a word-level model's table.

    The options do not say whether there are projections between equal sizes: bilm-tf has none, AllenNLP always has
    them. `names`, the published names of the arrays in the weights file, decide. `source` names the options file in
    errors.
    """
    has_projection, has_token_projection = stored_projections(names)
    lstm = _section(options, "lstm", source)
    try:
        _check_unknown(options, source)
        cell_dim, proj_dim = _integer(lstm, "lstm.dim"), _integer(lstm, "lstm.projection_dim")
        lstm_config = LSTMConfig(
            num_layers=_integer(lstm, "lstm.n_layers", 1, high=100),
            cell_dim=cell_dim,
            proj_dim=proj_dim,
            project=True if has_projection and cell_dim == proj_dim else None,  # between other sizes there must be one
            cell_clip=_clip(lstm, "lstm.cell_clip"),
            proj_clip=_clip(lstm, "lstm.proj_clip"),
            skip=_flag(lstm, "lstm.use_skip_connections", False),
            forget_bias=_number(options, "forget_bias", 1.0),
        )
        chars = _char_config(_section(options, "char_cnn", source)) if "char_cnn" in options else None
        if chars is None and num_words is None:
            raise ConfigError(
                "no char_cnn section, so the model reads words, but the size of its word table is not known"
            )
        vocab_size = options.get("n_tokens_vocab")
        if chars is None and vocab_size not in (None, num_words):
            raise ConfigError(
                f"n_tokens_vocab is {str(vocab_size)[:80]}; the model's word table has {num_words:,} rows.",
                "The weights and the options belong to different models.",
            )
        return BiLMConfig(
            chars=chars,
            words=None if num_words is None else WordConfig(num_words=num_words, word_dim=lstm_config.proj_dim),
            lstm=lstm_config,
            bidirectional=_flag(options, "bidirectional", True),
            project_tokens=True if has_token_projection and chars and chars.num_filters == proj_dim else None,
        )
    except ConfigError as error:
        raise WeightsError(f"{source}: {error.message}", error.hint or "Is it the model's options file?") from error


def options_from_config(config: BiLMConfig) -> dict[str, Any]:
    """The contents of options.json for a model, as AllenNLP and simple_elmo read it."""
    lstm = config.lstm
    reads_bytes = config.chars is not None and config.words is None and config.chars.num_chars == 261
    reads_words = config.chars is None and not config.projects_tokens
    if not (reads_bytes or reads_words):
        raise ConfigError(
            "options.json can describe models that read bytes or words; this one has another token layer.",
            "Store it in this package's own format.",
        )
    options: dict[str, Any] = {
        "lstm": {
            "use_skip_connections": lstm.skip,
            "projection_dim": lstm.proj_dim,
            "cell_clip": lstm.cell_clip,
            "proj_clip": lstm.proj_clip,
            "dim": lstm.cell_dim,
            "n_layers": lstm.num_layers,
        }
    }
    if config.chars:
        options["char_cnn"] = {
            "activation": config.chars.activation,
            "filters": [list(f) for f in config.chars.filters],
            "max_characters_per_token": config.chars.max_chars,
            "embedding": {"dim": config.chars.char_dim},
            "n_characters": 262,
            "n_highway": config.chars.num_highways,
        }
    else:
        assert config.words is not None
        options["n_tokens_vocab"] = config.words.num_words
    if not config.bidirectional:
        options["bidirectional"] = False
    return options


def _char_config(section: dict[str, Any]) -> CharConfig:
    num_chars = _integer(section, "char_cnn.n_characters", 262)
    if num_chars not in (261, 262):
        raise ConfigError(f"char_cnn.n_characters is {num_chars}; expected 261 or 262")
    embedding = section.get("embedding")
    if not isinstance(embedding, dict):
        raise ConfigError(f"char_cnn.embedding is {embedding!r}; expected an object with 'dim'")
    return CharConfig(
        char_dim=_integer(embedding, "char_cnn.embedding.dim"),
        max_chars=_integer(section, "char_cnn.max_characters_per_token", 50, low=3, high=10_000),
        filters=_filters(section.get("filters")),
        activation=section.get("activation", "relu"),
        num_highways=_integer(section, "char_cnn.n_highway", 0, low=0, high=100),
    )


def _filters(value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or not all(isinstance(f, list) and len(f) == 2 for f in value):
        raise ConfigError(f"char_cnn.filters is {str(value)[:80]}; expected pairs [width, count]")
    return tuple((f[0], f[1]) for f in value)


def _section(options: dict[str, Any], key: str, source: str) -> dict[str, Any]:
    section = options.get(key)
    if section is None and any("transformer" in str(name).lower() for name in options):
        raise WeightsError(f"{source} describes a transformer language model; only LSTM models are read.")
    if not isinstance(section, dict):
        raise WeightsError(f"{source}: {key!r} is {str(section)[:80]}; expected an object.", "Is it an options file?")
    return section


def _integer(
    section: dict[str, Any], key: str, default: int | None = None, low: int = 1, high: int = LARGEST_DIM
) -> int:
    value = section.get(key.rsplit(".", 1)[-1], default)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        shown = "missing" if value is None else str(value)[:80]
        raise ConfigError(f"{key} is {shown}; expected an integer from {low} to {high:,}.")
    return value


def _number(section: dict[str, Any], key: str, default: float) -> float:
    value = section.get(key.rsplit(".", 1)[-1], default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_NUMBER:
        raise ConfigError(
            f"{key} is {str(value)[:80]}; expected a finite number from {-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}."
        )
    return float(value)


def _clip(section: dict[str, Any], key: str) -> float | None:
    return None if section.get(key.rsplit(".", 1)[-1]) is None else _number(section, key, 0.0)


def _flag(section: dict[str, Any], key: str, default: bool) -> bool:
    value = section.get(key.rsplit(".", 1)[-1], default)
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is {str(value)[:80]}; expected true or false")
    return value


def _check_unknown(options: dict[str, Any], source: str) -> None:
    """Raises ConfigError for an unknown setting of the network; outside its sections, there is only a warning."""
    for prefix, known_keys in _KNOWN_KEYS.items():
        section: Any = options
        for name in prefix.split(".")[:-1]:
            section = section.get(name) if isinstance(section, dict) else None
        for key in section if isinstance(section, dict) else ():
            if key in known_keys:
                continue
            if prefix:
                raise ConfigError(
                    f"{prefix}{str(key)[:80]} is unknown; expected only {', '.join(sorted(known_keys))}.",
                    "Is it misspelt? If the network is the same without it, remove it from the file.",
                )
            log.warning("%s: setting %r is unknown and ignored.", source, str(key)[:80])
