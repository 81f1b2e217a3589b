"""The settings of a new fine-tuning run: their defaults, and those that the model decides and a user cannot give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmo.errors import ConfigError
from elmo.settings import merge

DEFAULTS: dict[str, Any] = {"optim": {"lr": 5e-4}, "train": {"epochs": 1.0}}
_SHAPE = "The shape of the model to start from is used; leave it out."
_FIXED = {  # setting or section -> what to do
    "preset": _SHAPE,
    "model": _SHAPE,
    "data.max_chars": "The text is prepared for the model to start from; leave it out.",
    "data.vocab_path": "The vocabulary is that of the model with frequent words of the text; leave it out.",
    "data.min_count": "The minimum count of a new word is the option --min-count, in Python min_count.",
}


def check_finetuning_settings(*layers: Mapping[str, Any]) -> None:
    """Raises ConfigError for a setting that would have no effect in fine-tuning."""
    settings: dict[str, Any] = {}
    for layer in layers:
        settings = merge(settings, layer)
    for key, hint in _FIXED.items():
        found: Any = settings
        for name in key.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None:
            raise ConfigError(f"{_full_key(key, found)} cannot be set in fine-tuning.", hint)


def _full_key(key: str, value: Any) -> str:
    """The key of the first setting in a table: model and {"lstm": {"cell_dim": 3}} give model.lstm.cell_dim."""
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        key = f"{key}.{name}"
    return key
