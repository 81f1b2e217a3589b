"""Reader and writer of the ner task: column files, as `elmo.text.entity_columns` describes them. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elmo.files import atomic_file
from elmo.text.entity_columns import read_entities


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence and the IOB2 tag of each token; tags are None for unlabelled text."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None = None

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.tokens,)


def read_examples(path: Path) -> list[Example]:
    """Reads the sentences of a column file."""
    return [Example(tokens=words, tags=tags) for words, tags in read_entities(path)]


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Writes two columns, word and IOB2 tag, with a blank line after each sentence; `read_examples` inverts it."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            for token, tag in zip(example.tokens, example.tags or ("O",) * len(example.tokens), strict=True):
                file.write(f"{token}\t{tag}\n")
            file.write("\n")
