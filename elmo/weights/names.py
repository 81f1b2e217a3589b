"""One reversible table: the published files' names and layouts <-> ours.

Everything that speaks the published layout (HDF5 dumps, TensorFlow checkpoints, AllenNLP archives brought into it) goes
through this table, in both directions, so a name or a transposition stands in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo.errors import WeightsError
from elmo.model.config import BiLMConfig


class Entry(NamedTuple):
    """One tensor: its published name (and older spellings), ours, its published shape, and how the layouts differ."""

    published: str
    ours: str
    shape: tuple[int, ...]  # as published
    layout: str = "same"  # same, transpose, conv
    spellings: tuple[str, ...] = ()


def table(config: BiLMConfig) -> list[Entry]:
    """Every tensor of a model of this shape, in the order of the data path."""
    entries: list[Entry] = []
    if config.chars:
        chars_shape = (config.chars.num_chars, config.chars.char_dim)
        entries.append(Entry("char_embed", "token_encoder.chars.table", chars_shape))
        for i, (width, count) in enumerate(config.chars.filters):
            ours = f"token_encoder.chars.convolutions.{i}"
            entries.append(Entry(f"CNN/W_cnn_{i}", f"{ours}.weight", (1, width, config.chars.char_dim, count), "conv"))
            entries.append(Entry(f"CNN/b_cnn_{i}", f"{ours}.bias", (count,)))
        F = config.chars.num_filters
        for i in range(config.chars.num_highways):
            for part in ("transform", "carry"):
                ours = f"token_encoder.chars.highways.{i}.{part}"
                entries.append(Entry(f"CNN_high_{i}/W_{part}", f"{ours}.weight", (F, F), "transpose"))
                entries.append(Entry(f"CNN_high_{i}/b_{part}", f"{ours}.bias", (F,)))
    if config.words:
        words_shape = (config.words.num_words, config.words.word_dim)
        entries.append(Entry("embedding", "token_encoder.words", words_shape, spellings=("word_embed",)))
    P, H = config.lstm.proj_dim, config.lstm.cell_dim
    if config.projects_tokens:
        entries.append(Entry("CNN_proj/W_proj", "token_encoder.project.weight", (config.token_dim, P), "transpose"))
        entries.append(Entry("CNN_proj/b_proj", "token_encoder.project.bias", (P,)))
    for d in range(config.num_directions):
        for layer in range(config.lstm.num_layers):
            shapes = {"W_0": ("kernel", (2 * P, 4 * H)), "B": ("bias", (4 * H,)), "W_P_0": ("projection", (H, P))}
            for name, (ours, shape) in shapes.items():
                if name != "W_P_0" or config.lstm.projects:
                    entries.append(_lstm_entry(config, d, layer, name, ours, shape))
    if config.head and config.head.kind == "softmax":
        if not config.head.tied:
            entries.append(Entry("softmax/W", "head.weight", (config.head.vocab_size, P)))
        entries.append(Entry("softmax/b", "head.bias", (config.head.vocab_size,)))
    return entries


def match(entries: list[Entry], shapes: Mapping[str, tuple[int, ...]], source: str) -> list[tuple[Entry, str]]:
    """Pairs each tensor of the model with the name it has in a file; a missing or misshapen one is an error."""
    found = []
    for entry in entries:
        name = next((n for n in (entry.published, *entry.spellings) if n in shapes), None)
        if name is None:
            raise WeightsError(
                f"{source} has no {entry.published!r} (wanted shape {entry.shape}).",
                "The file is cut short, or not a biLM, or belongs to other options. `elmo models` lists known sha256.",
            )
        if tuple(shapes[name]) != entry.shape:
            raise WeightsError(
                f"{source}: {name!r} has shape {tuple(shapes[name])}; the options say {entry.shape}.",
                "The weights and the options belong to different models.",
            )
        found.append((entry, name))
    return found


def extra_names(matched: Iterable[tuple[Entry, str]], names: Iterable[str]) -> list[str]:
    """Names in a file that the model has no place for."""
    return sorted(set(names) - {name for _, name in matched})


def to_ours(entry: Entry, array: np.ndarray) -> Tensor:
    """A published array as our tensor: same numbers, our layout."""
    if entry.layout == "transpose":
        array = array.T
    elif entry.layout == "conv":
        array = array[0].transpose(2, 1, 0)  # (1, w, E, n) -> (n, E, w)
    return torch.from_numpy(np.ascontiguousarray(array))


def to_published(entry: Entry, tensor: Tensor) -> np.ndarray:
    """Our tensor as the published array: the exact inverse of `to_ours`."""
    array = tensor.detach().cpu().numpy()
    if entry.layout == "transpose":
        array = array.T
    elif entry.layout == "conv":
        array = array.transpose(2, 1, 0)[None]
    return np.ascontiguousarray(array)


def from_arrays(config: BiLMConfig, arrays: Mapping[str, np.ndarray], source: str) -> dict[str, Tensor]:
    """All tensors of a model from arrays under published names that are already in memory."""
    matched = match(table(config), {name: array.shape for name, array in arrays.items()}, source)
    return {entry.ours: to_ours(entry, np.asarray(arrays[name])) for entry, name in matched}


def _lstm_entry(config: BiLMConfig, d: int, layer: int, name: str, ours: str, shape: tuple[int, ...]) -> Entry:
    # dumps of one-layer models lack the MultiRNNCell level, those of one-directional models the RNN_d level
    directions = [f"RNN_{d}/RNN"] + (["RNN"] if config.num_directions == 1 else [])
    cells = [f"MultiRNNCell/Cell{layer}/LSTMCell"] + (["LSTMCell"] if config.lstm.num_layers == 1 else [])
    first, *others = [f"{direction}/{cell}/{name}" for direction in directions for cell in cells]
    return Entry(first, f"stacks.{d}.layers.{layer}.{ours}", shape, spellings=tuple(others))
