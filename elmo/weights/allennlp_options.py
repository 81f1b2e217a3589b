"""The options of an ELMo in an AllenNLP archive: sizes from its arrays, the rest from an options file in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from elmo.errors import WeightsError
from elmo.files import parse_json
from elmo.weights import torch_layout

log = logging.getLogger(__name__)

MAX_JSON_BYTES = 1 << 20


def complete_options(arrays: Mapping[str, np.ndarray], configs: list[tuple[str, bytes]], name: str) -> dict[str, Any]:
    """The options that the shapes imply, completed by an options file from the archive that agrees with them."""
    sizes = torch_layout.network_sizes(arrays)
    from_shapes: dict[str, dict[str, Any]] = {
        "lstm": {"dim": sizes.cell_dim, "projection_dim": sizes.proj_dim, "n_layers": sizes.num_layers},
        "char_cnn": {
            "embedding": {"dim": arrays["char_embed"].shape[1]},
            "filters": sizes.filters,
            "n_highway": sizes.num_highways,
        },
    }
    defaults = {
        "lstm": {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True},
        "char_cnn": {
            "activation": "relu",
            "max_characters_per_token": 50,
            "n_characters": arrays["char_embed"].shape[0] + 1,
        },
    }
    candidates = [options for source, text in configs for options in _find_options(source, text)]
    fitting = [options for options in candidates if _fits(options, from_shapes)]
    if candidates and not fitting:
        raise WeightsError(f"{name}: its options file does not fit its weights, whose sizes are {from_shapes}.")
    if not fitting:
        log.warning("%s contains no ELMo options: uses clips of 3, relu and 50 characters per word", name)
    options = fitting[0] if fitting else {}
    for clip in ("cell_clip", "proj_clip"):
        if options.get("lstm", {}).get(clip) == 0:  # AllenNLP tests `if clip:`, so that 0 is off
            options = {**options, "lstm": {**options["lstm"], clip: None}}
    return {part: {**defaults[part], **options.get(part, {}), **from_shapes[part]} for part in ("lstm", "char_cnn")}


def _find_options(source: str, text: bytes) -> list[dict[str, Any]]:
    """Every object in a JSON file that looks like ELMo options, at any depth."""
    if len(text) > MAX_JSON_BYTES:
        raise WeightsError(f"{source} is larger than {MAX_JSON_BYTES:,} bytes.")
    options = []
    queue: list[Any] = [parse_json(text, source, error=WeightsError)]
    while queue:
        value = queue.pop()
        if isinstance(value, dict):
            if isinstance(value.get("lstm"), dict) and isinstance(value.get("char_cnn"), dict):
                options.append(value)
            queue += value.values()
        elif isinstance(value, list):
            queue += value
    return options


def _fits(options: dict[str, Any], sizes: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(options[part].get(key, size) == size for part, values in sizes.items() for key, size in values.items())
