"""Finds the training and the held-out files of a text and checks that they fit together, before any text is read."""

from __future__ import annotations

import os
from collections.abc import Iterable

from elmo.errors import ConfigError
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.sources import Source, find_language_sources, find_sources


def find_text(config: PrepareConfig) -> tuple[list[Source], list[Source]]:
    """The training files and the held-out files.

    A missing file, a file of two languages and a file that is both training and held-out text are errors.
    """
    training = find_language_sources(config.languages) if config.languages else find_sources(config.files)
    _refuse_shares("", config.heldout_files)
    for language, names in config.heldout_languages.items():
        _refuse_shares(language, names)
    heldout = find_sources(config.heldout_files) if config.heldout_files else []
    heldout += find_language_sources(config.heldout_languages)
    training_paths = {_key(source) for source in training}
    for source in heldout:
        if _key(source) in training_paths:
            raise ConfigError(f"{source.path} is both training and held-out text.", "Name each file once.")
    return training, heldout


def _refuse_shares(language: str, names: Iterable[str]) -> None:
    """Raises ConfigError for a held-out file whose name is a share of the text, such as 0.1, and does not exist."""
    for name in names:
        if _is_share(name) and not os.path.exists(name):
            whole = "all languages" if language else "the whole text"
            of_language = f" of {language}" if language else ""
            hint = f"A share holds for {whole}: --heldout {name}, or data.heldout = {name} in a file of settings."
            raise ConfigError(f"The held-out text{of_language} is {name}; expected a file.", hint)


def _is_share(name: str) -> bool:
    try:
        return 0 <= float(name) < 1
    except ValueError:
        return False


def _key(source: Source) -> str:
    return source.path if source.path == "-" else os.path.realpath(source.path)
