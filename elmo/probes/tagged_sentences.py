"""Sentences with one tag per word, from CoNLL-U treebanks and IOB2 files: the data of the linear probes."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elmo.errors import ConfigError, DataError
from elmo.text.columns import read_blocks, read_word
from elmo.text.entity_columns import read_entities

TREEBANK_COLUMNS = {"upos": 3, "xpos": 4}  # from 0; the word itself is in column 1
COLUMNS = (*TREEBANK_COLUMNS, "iob")
SPLITS = ("train", "dev", "test")
_NO_WORD = re.compile(r"[0-9]+(?:-|\.)[0-9]+")  # the id of a multiword token or an empty node


@dataclass(frozen=True)
class TaggedSentence:
    """The tokens of one sentence and one tag per token."""

    tokens: list[str]
    tags: list[str]


def read_tagged(path: str | Path, column: str, *, limit: int | None = None) -> list[TaggedSentence]:
    """Reads the sentences of a CoNLL-U file, or for the column iob those of a file that `elmo task train ner` reads.

    Of CoNLL-U, skips the lines of multiword tokens (1-2) and of empty nodes (1.1), as its basic representation does,
    and sentences in which the column is not annotated ("_"). `limit` is the maximum number of sentences read.
    """
    if column not in COLUMNS:
        raise ConfigError(f"column is {column!r}; expected one of {', '.join(COLUMNS)}.")
    if column == "iob":
        entities = islice(read_entities(path), limit)
        return [TaggedSentence(list(words), list(tags)) for words, tags in entities]
    sentences = list(islice(_sentences(path, TREEBANK_COLUMNS[column]), limit))
    annotated = [sentence for sentence in sentences if "_" not in sentence.tags]
    if not annotated:
        problem = f"its {len(sentences)} sentences have no {column} tags" if sentences else "it has no sentences"
        raise DataError(f"{path}: {problem}.", "Choose another --column, or another file.")
    return annotated


def _sentences(path: str | Path, column: int) -> Iterator[TaggedSentence]:
    for block in read_blocks(path, tabs_only=True):
        for row in block.rows:
            if len(row.columns) <= column:
                raise DataError(
                    f"{path}:{row.number}: the row has {len(row.columns)} columns; expected at least {column + 1}, "
                    "separated by tabs."
                )
        words = [row for row in block.rows if not _NO_WORD.fullmatch(row.columns[0])]
        for expected, row in enumerate(words, 1):
            if row.columns[0] != str(expected):
                raise DataError(
                    f"{path}:{row.number}: the id of the row is {row.columns[0]!r}; expected {expected}.",
                    "CoNLL-U numbers the words of each sentence from 1, and a blank line ends a sentence; the ids of "
                    "multiword tokens and empty nodes are like 1-2 and 1.1.",
                )
        if words:
            yield TaggedSentence([read_word(path, row, 1) for row in words], [row.columns[column] for row in words])


def find_splits(paths: Sequence[str | Path]) -> dict[str, Path]:
    """Finds the train, dev and test file: three files in this order, a folder with the files, or their common prefix.

    For example, `treebanks/en_ewt` finds treebanks/en_ewt-ud-train.conllu and the other two.
    """
    if len(paths) == 3:
        return {split: Path(path) for split, path in zip(SPLITS, paths, strict=True)}
    if len(paths) != 1:
        raise ConfigError(
            f"{len(paths)} paths were given.", "Give the train, dev and test file, a folder, or their common prefix."
        )
    prefix = str(paths[0])
    pattern = f"{glob.escape(prefix)}/*" if Path(prefix).is_dir() else f"{glob.escape(prefix)}*"
    candidates = [Path(name) for name in sorted(glob.glob(pattern)) if Path(name).is_file()]
    split_paths: dict[str, Path] = {}
    for split in SPLITS:
        matches = [path for path in candidates if split in path.name.removeprefix(Path(prefix).name)]
        if len(matches) != 1:
            names = ", ".join(path.name for path in matches) or "none"
            raise ConfigError(
                f"{prefix}: expected exactly one {split} file; found: {names}.",
                "Give the common prefix of the three files (treebanks/en_ewt), or the three files.",
            )
        split_paths[split] = matches[0]
    return split_paths
