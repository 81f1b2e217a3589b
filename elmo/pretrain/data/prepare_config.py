"""The options of `prepare`: which text becomes a prepared folder, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from elmo.errors import ConfigError
from elmo.pretrain.data.corpus import Reading
from elmo.pretrain.data.vocabulary import MAX_TYPES
from elmo.settings import at_least


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Which text to prepare and how."""

    files: tuple[str, ...]  # names and globs, "-" for standard input
    heldout_files: tuple[str, ...] = ()  # if given, exactly these files are held out
    languages: dict[str, tuple[str, ...]] = field(default_factory=dict)  # instead of `files`: language -> names, globs
    heldout_languages: dict[str, tuple[str, ...]] = field(default_factory=dict)  # instead of `heldout_files`
    temperature: Annotated[float, at_least(1)] = 1.0  # a language is read in proportion to size ** (1 / temperature)
    heldout: float = 0.01  # otherwise this share of the sentences, chosen by a hash of each sentence
    max_heldout: int = 10_000  # sentences; at least one of 20 or more is held out, even if the share gives none
    reading: Reading = field(default_factory=Reading)
    vocab_path: str | None = None  # None: built from the training text
    max_vocab: int | None = 100_000  # lines of a built vocabulary, <S> </S> <UNK> included; None: no limit
    min_count: int = 2  # a built vocabulary excludes rarer words; the model learns <UNK> from them
    max_chars: int = 50
    seed: int = 0  # of the choice of held-out sentences
    shard_tokens: int = 16_000_000
    max_types: int = MAX_TYPES  # word types (distinct words); the rarest beyond this number are read as <UNK>

    def __post_init__(self) -> None:
        for name in ("files", "heldout_files"):
            value = getattr(self, name)
            object.__setattr__(self, name, (str(value),) if isinstance(value, (str, Path)) else tuple(map(str, value)))
        self._check_languages()
        if not 0 <= self.heldout < 1:
            raise ConfigError(f"heldout is {self.heldout}; expected a share from 0 to below 1.")
        for name, minimum in (("min_count", 1), ("max_chars", 3), ("shard_tokens", 1), ("max_heldout", 1)):
            if getattr(self, name) < minimum:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least {minimum}.")

    @property
    def training_files(self) -> tuple[str, ...]:
        """The names and globs of the training text, of all languages."""
        return self.files or tuple(name for names in self.languages.values() for name in names)

    @property
    def all_heldout_files(self) -> tuple[str, ...]:
        """The names and globs of the held-out text, of all languages."""
        return self.heldout_files or tuple(name for names in self.heldout_languages.values() for name in names)

    def _check_languages(self) -> None:
        for name in ("languages", "heldout_languages"):
            object.__setattr__(self, name, _as_table(getattr(self, name)))
            for language, files in getattr(self, name).items():
                if not files:
                    raise ConfigError(
                        f"{name}.{language} names no files; expected at least one.",
                        "Name files, globs or folders, or leave the language out.",
                    )
        if not 1 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature is {self.temperature}; expected a finite number of at least 1.")
        if self.languages and (self.files or self.heldout_files):
            raise ConfigError(
                "Some files have a language and others have none.",
                "Name the language of every file, of held-out files too: --language de=de.txt --heldout de=test.txt",
            )
        if self.temperature != 1 and not self.languages:
            raise ConfigError(
                f"temperature is {self.temperature:g} and the text has no languages.", "Name them: --language de=de.txt"
            )
        spellings: dict[str, str] = {}
        for name in self.languages:
            if spellings.setdefault(name.casefold(), name) != name:
                raise ConfigError(
                    f"{spellings[name.casefold()]} and {name} would be two languages.", "Write the name in one way."
                )
        for name in self.heldout_languages:
            if name not in self.languages:
                known = ", ".join(self.languages) or "none"
                raise ConfigError(f"{name} has held-out text and no training text.", f"Languages with text: {known}.")


def _as_table(languages: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        name: (str(files),) if isinstance(files, (str, Path)) else tuple(map(str, files))
        for name, files in languages.items()
    }
