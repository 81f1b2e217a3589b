"""The options of `prepare`: which text becomes a prepared folder, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from elmo.errors import ConfigError
from elmo.pretrain.data.corpus import Reading
from elmo.pretrain.data.vocabulary import MAX_TYPES


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Which text to prepare and how."""

    files: tuple[str, ...]  # names and globs, "-" for standard input
    heldout_files: tuple[str, ...] = ()  # if given, exactly these files are held out
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
        if not 0 <= self.heldout < 1:
            raise ConfigError(f"heldout is {self.heldout}; expected a share from 0 to below 1.")
        for name, minimum in (("min_count", 1), ("max_chars", 3), ("shard_tokens", 1), ("max_heldout", 1)):
            if getattr(self, name) < minimum:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least {minimum}.")
