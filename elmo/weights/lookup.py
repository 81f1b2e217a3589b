"""From a name to a model's parts: a path, a shipped model, one the user put in place, or an untrained tiny one.

Nothing is downloaded. A known model that is not on this machine is an error that says what to get and where to put it.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
from pathlib import Path

import numpy as np

from elmo.errors import ConfigError, WeightsError
from elmo.files import sha256_file
from elmo.model.config import PRESETS, num_parameters
from elmo.weights.catalogue import KNOWN, KnownModel
from elmo.weights.formats import read_model
from elmo.weights.model_folders import local_models, models_folder, shipped_model
from elmo.weights.model_parts import ModelParts
from elmo.weights.names import Entry, table, to_ours

log = logging.getLogger(__name__)

TINY = "tiny-random"
ALIASES = {"5.5B": "original-5.5b", "5.5b": "original-5.5b"}  # as other libraries called it


def find_model(model: str | Path, *, late_head: bool = False) -> ModelParts:
    """The parts of a model by path (what exists, or holds a separator) or by name (`elmo models` lists them).

    With `late_head`, the softmax stays on disk until it is called for, in formats that can.
    """
    text = os.path.expanduser(str(model))
    if not text:
        raise ConfigError("The model's name is empty.", "Give a name (`elmo models` lists them) or a path.")
    if isinstance(model, Path) or os.path.exists(text) or "/" in text or os.sep in text:
        return read_model(text, late_head=late_head)
    text = ALIASES.get(text, text)
    if text == "default":
        return _default_model(late_head)
    if text == TINY:
        return tiny_random()
    folder = local_models().get(text)
    known = KNOWN.get(text)
    if folder is not None:
        return _read_known(known, folder) if known else read_model(folder, late_head=late_head)
    raise _not_here(known) if known else _unknown(text)


def tiny_random(seed: int = 2018) -> ModelParts:
    """An untrained model of the preset `tiny`, the same numbers on every machine; for trials and tests."""
    config = PRESETS["tiny"]
    rng = np.random.Generator(np.random.PCG64(seed))  # its own stream: the caller's random state is not touched
    return ModelParts(
        config=config,
        tensors={entry.ours: to_ours(entry, _random_array(entry, rng)) for entry in table(config)},
        card="# tiny-random\n\nUntrained: random numbers in the shape of a small biLM. Its vectors mean nothing.\n",
        about={"name": TINY, "trained": False},
        format="built in",
        source=TINY,
    )


def check_files(known: KnownModel, folder: Path) -> None:
    """Compares what is there of a known model's files with the sizes and sha256 that are known."""
    for file in known.files:
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


def _default_model(late_head: bool) -> ModelParts:
    shipped = shipped_model()
    if shipped is not None:
        return read_model(shipped, late_head=late_head)
    log.warning("no trained model is shipped with this version: `default` is %s, which is untrained", TINY)
    return tiny_random()


def _read_known(known: KnownModel, folder: Path) -> ModelParts:
    check_files(known, folder)
    only = next(iter(folder.iterdir())) if len(list(folder.iterdir())) == 1 else folder
    if ".tar" in only.suffixes and only.is_file():
        raise WeightsError(f"{only} is still packed.", f"Unpack it where it lies: tar xf {only.name}")
    parts = read_model(only if only.suffix == ".zip" else folder)
    seen = num_parameters(parts.config)
    if known.parameters is not None and seen != known.parameters:
        raise WeightsError(
            f"{folder} holds a model of {seen:,} parameters; {known.name!r} has {known.parameters:,}.",
            "Another model lies under that name: give its folder another one.",
        )
    return dataclasses.replace(parts, card=parts.card or _card(known), about={**parts.about, "name": known.name})


def _card(known: KnownModel) -> str:
    return (
        f"# {known.name}\n\n"
        f"- Languages: {', '.join(known.languages)}\n"
        f"- Trained on: {known.trained_on or 'not recorded'}\n"
        f"- Licence: {known.licence or 'not recorded; ask its publishers before you pass it on'}\n"
        f"- From: {known.page}\n"
    )


def _not_here(known: KnownModel) -> WeightsError:
    if known.obstacle:
        return WeightsError(f"{known.name!r} is known but cannot be read: {known.obstacle}", f"See {known.page}")
    folder = models_folder() / known.name
    steps = [f"Download into {folder}/ (nothing is fetched for you):"]
    steps += [f"  {file.url}" + ("" if file.url.endswith(file.name) else f"  as {file.name}") for file in known.files]
    steps += [known.note] if known.note else []
    return WeightsError(f"The model {known.name!r} is not on this machine.", "\n  ".join(steps))


def _unknown(name: str) -> WeightsError:
    here = sorted({"default", TINY, *local_models()})
    near = difflib.get_close_matches(name.lower(), [*here, *KNOWN], n=1, cutoff=0.5)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return WeightsError(
        f"There is no model {name[:200]!r}, neither as a path nor as a name.{guess}",
        f"On this machine: {', '.join(here)}. `elmo models` lists all known ones and where to get them.",
    )


def _random_array(entry: Entry, rng: np.random.Generator) -> np.ndarray:
    """Uniform values of variance 1 / inputs; biases are zero, a highway's gate starts nearly shut."""
    if len(entry.shape) == 1:
        return np.full(entry.shape, -2.0 if entry.published.endswith("b_carry") else 0.0, dtype=np.float32)
    if entry.published == "char_embed":
        reach = 1.0
    else:
        inputs = entry.shape[1] * entry.shape[2] if entry.layout == "conv" else entry.shape[0]
        reach = (3.0 / inputs) ** 0.5
    return (2.0 * rng.random(entry.shape, dtype=np.float32) - 1.0) * np.float32(reach)
