"""The settings of a new fine-tuning run: their defaults, and those that the model decides and a user cannot give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elmo.errors import ConfigError
from elmo.model.config import HeadConfig
from elmo.settings import merge

DEFAULTS: dict[str, Any] = {"optim": {"lr": 5e-4}, "train": {"epochs": 1.0}}
_SHAPE = "The shape of the model to start from is used; leave it out."
_FIXED = {  # setting or section -> what to do
    "preset": _SHAPE,
    "model": _SHAPE,
    "data.max_chars": "The text is prepared for the model to start from; leave it out.",
    "data.vocab_path": "The vocabulary is that of the model with frequent words of the text; leave it out.",
    "data.min_count": "The minimum count of a new word is the option --min-count, in Python min_count.",
    "objective.cutoffs": "An adaptive softmax keeps its clusters, and another softmax has none; leave it out.",
    "objective.tied": "The softmax is that of the model to start from, or a new one, which is not tied; leave it out.",
}


def check_finetuning_settings(head: HeadConfig | None, *layers: Mapping[str, Any]) -> None:
    """Raises ConfigError for a setting that would have no effect in fine-tuning a model with this softmax."""
    settings: dict[str, Any] = {}
    for layer in layers:
        settings = merge(settings, layer)
    for key, hint in _FIXED.items():
        found = _value(settings, key)
        if found is not None:
            raise ConfigError(f"{_full_key(key, found)} cannot be set in fine-tuning.", hint)
    is_adaptive = head is not None and head.kind == "adaptive"
    if is_adaptive and _value(settings, "objective.num_samples") is not None:
        raise ConfigError(
            "objective.num_samples has no effect, because the softmax of the model to start from is adaptive.",
            "Leave it out.",
        )
    given = _value(settings, "objective.softmax")
    if given is not None and (given == "adaptive") != is_adaptive:
        softmax = "the softmax of the model to start from is adaptive"
        if head is None:
            softmax = "the model to start from has no softmax, and its new one is not adaptive"
        elif not is_adaptive:
            softmax = "the softmax of the model to start from is not adaptive"
        raise ConfigError(f"objective.softmax is {given!r}, but {softmax}.", "Leave it out.")


def _value(settings: Mapping[str, Any], key: str) -> Any:
    """The value of a key with dots; None: it is not given."""
    found: Any = settings
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _full_key(key: str, value: Any) -> str:
    """The key of the first setting in a table: model and {"lstm": {"cell_dim": 3}} give model.lstm.cell_dim."""
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        key = f"{key}.{name}"
    return key
