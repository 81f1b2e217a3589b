"""Names of models: aliases, and errors that say how to get a model or which name may have been meant.

This module does not import torch, and it downloads nothing.
"""

from __future__ import annotations

import difflib

from elmo.errors import WeightsError
from elmo.weights.catalogue import OWN_MODELS, PUBLISHED_MODELS, PublishedModel
from elmo.weights.languages import LANGUAGES, language_code, language_codes
from elmo.weights.model_folders import local_models, models_folder

TINY = "tiny-random"
MIRROR_VARIABLE = "ELMO_MIRROR"  # address of a mirror of all published models
ALIASES = {"5.5B": "original-5.5b", "5.5b": "original-5.5b"}  # the name in other libraries
_MANY_LANGUAGES = ("multilingual", "multi", "xx")  # what the model `many` is called elsewhere
_MAX_LISTED = 6


def resolve_alias(name: str) -> str:
    """The name of a model in the catalogue for a name that other libraries use; other names are unchanged."""
    return ALIASES.get(name, name)


def by_hand_steps(model: PublishedModel) -> str:
    """What to download and where to put it, for a machine without a network; several lines."""
    steps = [f"By hand, put these files into {models_folder() / model.name}/:"]
    steps += [f"  {file.url}" + ("" if file.url.endswith(file.name) else f"  as {file.name}") for file in model.files]
    steps += [model.note] if model.note else []
    return "\n  ".join(steps)


def not_downloaded(model: PublishedModel) -> WeightsError:
    """The error for a published model that is not on this machine."""
    if model.obstacle:
        return WeightsError(f"{model.name!r} is known but cannot be read: {model.obstacle}", f"See {model.page}")
    size = sum(file.num_bytes or 0 for file in model.files)
    about = f" ({size / 1e6:,.0f} MB)" if size else ""
    command = f"`elmo fetch {model.name}` downloads it{about}; in Python: elmo.load({model.name!r}, download=True)."
    lines = [command if model.fetchable else model.by_hand, by_hand_steps(model)]
    return WeightsError(f"The model {model.name!r} is not on this machine.", "\n  ".join(lines))


def unknown_name(name: str) -> WeightsError:
    """The error for a name that no model has: it suggests models of a language, or the closest names."""
    code = language_code(name[:40])
    if code is not None:
        return _language(name, code)
    local = sorted({"default", TINY, *local_models()})
    names = {known.lower(): known for known in [*PUBLISHED_MODELS, *ALIASES, *local]}
    similar = [names[close] for close in difflib.get_close_matches(name[:200].lower(), names, n=3, cutoff=0.6)]
    if name.lower() in _MANY_LANGUAGES and "many" in names:
        similar = ["many"]
    suggestion = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    return WeightsError(
        f"There is no model {name[:200]!r}, neither as a path nor as a name.{suggestion}",
        f"On this machine: {', '.join(local)}. `elmo models` lists all known models, and `elmo fetch NAME` gets one.",
    )


def _language(name: str, code: str) -> WeightsError:
    codes = language_codes(code)
    known = [m for m in (*OWN_MODELS.values(), *PUBLISHED_MODELS.values()) if codes & set(m.languages)]
    local = local_models()
    # those on this machine first, then those that can be downloaded; models of few languages before models of many
    known.sort(key=lambda m: (m.name not in local, not m.fetchable, len(m.languages)))
    known = [m for m in known if not m.obstacle and (m.files or m.name in local)]
    names = ", ".join(m.name for m in known[:_MAX_LISTED]) + (", and others" if len(known) > _MAX_LISTED else "")
    lines = [f"`elmo models --language {code}` lists the models of that language: {names}."] if known else []
    fetchable = next((m for m in known if m.fetchable and m.name not in local), None)
    here = next((m for m in known if m.name in local), None)
    if here is not None:
        lines.append(f"On this machine: elmo.load({here.name!r}).")
    if fetchable is not None and (here is None or len(here.languages) > len(fetchable.languages)):
        what = "one" if here is None else f"a model of {LANGUAGES[code]} alone"
        lines.append(f"`elmo fetch {fetchable.name}` downloads {what}; then elmo.load({fetchable.name!r}).")
    return WeightsError(f"There is no model {name!r}; {LANGUAGES[code]} is a language.", "\n  ".join(lines))
