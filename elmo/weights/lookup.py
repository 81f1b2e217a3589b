"""Finds a model by name or path: a path, a shipped model, one in the user's folder or the hub's cache, or a tiny one.

Nothing is downloaded. For a published model that is not on this machine, the error names the command that fetches it,
the files, and where to put them by hand.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path

import numpy as np

from elmo.errors import ConfigError, WeightsError
from elmo.files import sha256_file
from elmo.model.config import PRESETS, num_parameters
from elmo.weights.catalogue import PUBLISHED_MODELS, PublishedModel
from elmo.weights.fetch import RECORD, check_record
from elmo.weights.formats import read_model
from elmo.weights.hub import hub_folder, is_hub_name, parse_hub_name
from elmo.weights.model_folders import local_models, shipped_model
from elmo.weights.model_names import TINY, not_downloaded, resolve_alias, unknown_name
from elmo.weights.model_parts import ModelParts
from elmo.weights.names import TensorSpec, from_published, tensor_specs

log = logging.getLogger(__name__)


def find_model(model: str | Path, *, lazy_head: bool = False) -> ModelParts:
    """The parts of a model, by path (it exists or contains a separator) or by name (`elmo models` lists the names).

    hf://USER/NAME is a model of the Hugging Face Hub that was downloaded before (`elmo.weights.hub`).

    With `lazy_head`, a format that supports it leaves the softmax on disk until it is needed.
    """
    text = os.path.expanduser(str(model))
    if not text:
        raise ConfigError("The model's name is empty.", "Give a name (`elmo models` lists them) or a path.")
    if is_hub_name(text):
        return read_model(hub_folder(parse_hub_name(text), local_files_only=True), lazy_head=lazy_head)
    if isinstance(model, Path) or os.path.exists(text) or "/" in text or os.sep in text:
        return read_model(text, lazy_head=lazy_head)
    text = resolve_alias(text)
    if text == "default":
        return _default_model(lazy_head)
    if text == TINY:
        return tiny_random()
    folder = local_models().get(text)
    published = PUBLISHED_MODELS.get(text)
    if folder is not None:
        return _read_published_model(published, folder) if published else read_model(folder, lazy_head=lazy_head)
    raise not_downloaded(published) if published else unknown_name(text)


def tiny_random(seed: int = 2018) -> ModelParts:
    """An untrained model of the preset `tiny`, with the same numbers on every machine; for trials and tests."""
    config = PRESETS["tiny"]
    rng = np.random.Generator(np.random.PCG64(seed))  # leaves the caller's random state unchanged
    return ModelParts(
        config=config,
        tensors={spec.name: from_published(spec, _random_array(spec, rng)) for spec in tensor_specs(config)},
        card="# tiny-random\n\nUntrained: random numbers in the shape of a small biLM. Its vectors mean nothing.\n",
        about={"name": TINY, "trained": False},
        format="built in",
        source=TINY,
    )


def check_files(model: PublishedModel, folder: Path) -> None:
    """Compares those files of a published model that are in the folder with the catalogue's sizes and sha256."""
    for file in model.files:
        path = folder / file.name
        if not path.is_file():
            continue
        size = path.stat().st_size
        if file.num_bytes is not None and size != file.num_bytes:
            raise WeightsError(
                f"{path} has {size:,} bytes; the published file has {file.num_bytes:,}.", f"Download again: {file.url}"
            )
        if file.sha256 is not None and sha256_file(path) != file.sha256:
            raise WeightsError(f"{path} is not the published file (its sha256 differs).", f"Download again: {file.url}")


def _default_model(lazy_head: bool) -> ModelParts:
    shipped = shipped_model()
    if shipped is not None:
        return read_model(shipped, lazy_head=lazy_head)
    log.warning("no trained model is shipped with this version: `default` is %s, which is untrained", TINY)
    return tiny_random()


def _read_published_model(model: PublishedModel, folder: Path) -> ModelParts:
    check_record(folder, model.name)
    check_files(model, folder)
    files = [path for path in folder.iterdir() if path.name != RECORD]
    path = files[0] if len(files) == 1 else folder
    if ".tar" in path.suffixes and path.is_file():
        raise WeightsError(f"{path} is still packed.", f"Unpack it in its folder: tar xf {path.name}")
    parts = read_model(path if path.suffix == ".zip" else folder)
    parameters = num_parameters(parts.config)
    if model.parameters is not None and parameters != model.parameters:
        raise WeightsError(
            f"{folder} holds a model of {parameters:,} parameters; {model.name!r} has {model.parameters:,}.",
            "The folder contains another model: rename the folder.",
        )
    return dataclasses.replace(parts, card=parts.card or _card(model), about={**parts.about, "name": model.name})


def _card(model: PublishedModel) -> str:
    return (
        f"# {model.name}\n\n"
        f"- Languages: {', '.join(model.languages)}\n"
        f"- Trained on: {model.trained_on or 'not recorded'}\n"
        f"- Licence: {model.licence or 'not recorded; ask its publishers before you pass it on'}\n"
        f"- From: {model.page}\n"
    )


def _random_array(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Uniform values of variance 1 / inputs; biases are zero, except that highway gates start nearly closed."""
    shape = spec.published_shape
    if len(shape) == 1:
        return np.full(shape, -2.0 if spec.published_name.endswith("b_carry") else 0.0, dtype=np.float32)
    if spec.published_name == "char_embed":
        limit = 1.0
    else:
        num_inputs = shape[1] * shape[2] if spec.layout == "conv" else shape[0]
        limit = (3.0 / num_inputs) ** 0.5
    return (2.0 * rng.random(shape, dtype=np.float32) - 1.0) * np.float32(limit)
