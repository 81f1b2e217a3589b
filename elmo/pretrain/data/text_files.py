"""Finds the training and the held-out files of a text and checks that they fit together, before any text is read."""

from __future__ import annotations

import os
from collections.abc import Iterable

from elmo.errors import ConfigError
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.sources import Source, find_language_sources, find_sources


def find_text(config: PrepareConfig) -> tuple[list[Source], list[Source]]:
    """The training files and the held-out files.

    A missing file, a file of two languages, a file that is both training and held-out text, and held-out files beside a
    given share of the text are errors.
    """
    _refuse_share_beside_files(config)
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


def missing_heldout(config: PrepareConfig) -> list[str]:
    """A warning for each language without a held-out file, if other languages have one."""
    return [
        f"{language} has no held-out file, so that its perplexity is not measured."
        for language in config.languages
        if config.heldout_languages and language not in config.heldout_languages
    ]


def _refuse_share_beside_files(config: PrepareConfig) -> None:
    """Raises ConfigError for held-out files and a share; the default and 0 do not contradict the files."""
    if config.all_heldout_files and config.heldout not in (0, PrepareConfig.heldout):
        raise ConfigError(
            f"data.heldout is {config.heldout:g} and held-out files are named; expected one of them.",
            "With held-out files, nothing is held out of the training text: leave out the share or the files.",
        )


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
