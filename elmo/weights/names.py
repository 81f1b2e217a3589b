"""The table that maps each published tensor name and layout to ours, and back.

Every reader and writer of the published layout (HDF5 files, TensorFlow checkpoints, AllenNLP archives converted to it)
uses this table, in both directions, so each name and each transposition is written down once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo.errors import WeightsError
from elmo.model.config import BiLMConfig

TF_PARTS = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}  # published array of a cell -> TensorFlow's
_PROJECTION_PARTS = ("/W_P_0", "/projection/kernel")


class TensorSpec(NamedTuple):
    """One tensor of a model: its published name, its name in this package, its published shape, how layouts differ."""

    published_name: str
    name: str  # in this package: the key of the network's state dict
    published_shape: tuple[int, ...]
    layout: str = "same"  # how the published array becomes ours: same, transpose, conv
    aliases: tuple[str, ...] = ()  # other published names of the same tensor


def tensor_specs(config: BiLMConfig) -> list[TensorSpec]:
    """Every tensor of a model of this shape, in the order of the data path."""
    specs: list[TensorSpec] = []
    if config.chars:
        chars_shape = (config.chars.num_chars, config.chars.char_dim)
        specs.append(TensorSpec("char_embed", "token_encoder.chars.table", chars_shape))
        for i, (width, count) in enumerate(config.chars.filters):
            name, shape = f"token_encoder.chars.convolutions.{i}", (1, width, config.chars.char_dim, count)
            specs.append(TensorSpec(f"CNN/W_cnn_{i}", f"{name}.weight", shape, "conv"))
            specs.append(TensorSpec(f"CNN/b_cnn_{i}", f"{name}.bias", (count,)))
        F = config.chars.num_filters
        for i in range(config.chars.num_highways):
            for part in ("transform", "carry"):
                name = f"token_encoder.chars.highways.{i}.{part}"
                specs.append(TensorSpec(f"CNN_high_{i}/W_{part}", f"{name}.weight", (F, F), "transpose"))
                specs.append(TensorSpec(f"CNN_high_{i}/b_{part}", f"{name}.bias", (F,)))
    if config.words:
        words_shape = (config.words.num_words, config.words.word_dim)
        specs.append(TensorSpec("embedding", "token_encoder.words", words_shape, aliases=("word_embed",)))
    P, H = config.lstm.proj_dim, config.lstm.cell_dim
    if config.projects_tokens:
        project_shape = (config.token_dim, P)
        specs.append(TensorSpec("CNN_proj/W_proj", "token_encoder.project.weight", project_shape, "transpose"))
        specs.append(TensorSpec("CNN_proj/b_proj", "token_encoder.project.bias", (P,)))
    for direction in range(config.num_directions):
        for layer in range(config.lstm.num_layers):
            specs.append(_lstm_spec(config, direction, layer, "W_0", "kernel", (2 * P, 4 * H)))
            specs.append(_lstm_spec(config, direction, layer, "B", "bias", (4 * H,)))
            if config.lstm.projects:
                specs.append(_lstm_spec(config, direction, layer, "W_P_0", "projection", (H, P)))
    if config.head and config.head.kind == "softmax":
        if not config.head.tied:
            specs.append(TensorSpec("softmax/W", "head.weight", (config.head.vocab_size, P)))
        specs.append(TensorSpec("softmax/b", "head.bias", (config.head.vocab_size,)))
    return specs


def match_names(
    specs: list[TensorSpec], shapes: Mapping[str, tuple[int, ...]], source: str
) -> list[tuple[TensorSpec, str]]:
    """Each tensor of the model with the name it has in a file; a missing, misshapen or extra array is an error.

    `shapes` are the names and shapes in the file; `source` names the file in errors.
    """
    matches = []
    for spec in specs:
        name = next((n for n in (spec.published_name, *spec.aliases) if n in shapes), None)
        if name is None:
            raise WeightsError(
                f"{source} has no {spec.published_name!r} (expected shape {spec.published_shape}).",
                "The file is truncated, is not a biLM, or belongs to other options. `elmo models` lists known sha256.",
            )
        if tuple(shapes[name]) != spec.published_shape:
            raise WeightsError(
                f"{source}: {name!r} has shape {tuple(shapes[name])}; the options say {spec.published_shape}.",
                "The weights and the options belong to different models.",
            )
        matches.append((spec, name))
    refuse_extra(source, set(shapes) - {name for _, name in matches})
    return matches


def refuse_extra(source: str, extra: Iterable[str]) -> None:
    """Raises WeightsError if a file has arrays that no part of the model reads: its vectors would be wrong."""
    names = sorted(extra)
    if names:
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        raise WeightsError(
            f"{source}: {', '.join(repr(name[:200]) for name in names[:3])}{more} has no place in the model.",
            "The options describe another model, or the file holds more than a biLM: remove the arrays that are none.",
        )


def stored_projections(names: Iterable[str]) -> tuple[bool, bool]:
    """Whether published names include an LSTM projection, and whether they include a token projection."""
    names = list(names)
    return any(name.endswith(_PROJECTION_PARTS) for name in names), "CNN_proj/W_proj" in names


def from_published(spec: TensorSpec, array: np.ndarray) -> Tensor:
    """A published array as our tensor: the same numbers in our layout."""
    if spec.layout == "transpose":
        array = array.T
    elif spec.layout == "conv":
        array = array[0].transpose(2, 1, 0)  # (1, width, E, count) -> (count, E, width)
    return torch.from_numpy(np.ascontiguousarray(array))


def to_published(spec: TensorSpec, tensor: Tensor) -> np.ndarray:
    """Our tensor as the published array: the exact inverse of `from_published`."""
    array = tensor.detach().cpu().numpy()
    if spec.layout == "transpose":
        array = array.T
    elif spec.layout == "conv":
        array = array.transpose(2, 1, 0)[None]
    return np.ascontiguousarray(array)


def from_arrays(config: BiLMConfig, arrays: Mapping[str, np.ndarray], source: str) -> dict[str, Tensor]:
    """All tensors of a model, by our names, from arrays in memory under published names."""
    matches = match_names(tensor_specs(config), {name: array.shape for name, array in arrays.items()}, source)
    return {spec.name: from_published(spec, np.asarray(arrays[name])) for spec, name in matches}


def _lstm_spec(
    config: BiLMConfig, direction: int, layer: int, part: str, our_part: str, shape: tuple[int, ...]
) -> TensorSpec:
    # bilm-tf's dump has no MultiRNNCell level for one layer; for one direction it has no RNN_d level, and since it
    # renames only what follows a slash, "rnn" and the arrays keep TensorFlow's names
    cells = [f"MultiRNNCell/Cell{layer}/LSTMCell"] + (["LSTMCell"] if config.lstm.num_layers == 1 else [])
    names = [f"RNN_{direction}/RNN/{cell}/{part}" for cell in cells]
    if config.num_directions == 1:
        names += [f"RNN/{cell}/{part}" for cell in cells] + [f"rnn/{cell}/{TF_PARTS[part]}" for cell in cells]
    published_name, *aliases = names
    name = f"stacks.{direction}.layers.{layer}.{our_part}"
    return TensorSpec(published_name, name, shape, aliases=tuple(aliases))
