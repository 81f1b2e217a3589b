"""Words with a tag each, from CoNLL-U treebanks and IOB2 files: what the linear probes are fitted and scored on."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elmo.errors import ConfigError, DataError
from elmo.text.lines import read_lines

COLUMNS = {"upos": 3, "xpos": 4, "iob": 2}  # from 0; the word itself is column 1
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Tagged:
    """One sentence: a tag for each word."""

    tokens: list[str]
    tags: list[str]


def read_tagged(path: str | Path, column: str, *, limit: int | None = None) -> list[Tagged]:
    """The sentences of a tab-separated file whose first column numbers the words.

    Lines of multiword tokens (1-2) and of words that are not written (1.1) are passed over, as in CoNLL-U's own basic
    representation. A sentence in which the column is not filled in ("_") is left out.
    """
    if column not in COLUMNS:
        raise ConfigError(f"column is {column!r}; expected one of {', '.join(COLUMNS)}.")
    sentences = list(islice(_sentences(path, COLUMNS[column]), limit))
    filled = [sentence for sentence in sentences if "_" not in sentence.tags]
    if not filled:
        what = f"its {len(sentences)} sentences have no {column} tags" if sentences else "it has no sentences"
        raise DataError(f"{path}: {what}.", "Choose another --column, or another file.")
    return filled


def _sentences(path: str | Path, column: int) -> Iterator[Tagged]:
    tokens: list[str] = []
    tags: list[str] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            if tokens:
                yield Tagged(tokens, tags)
            tokens, tags = [], []
        elif not (line.startswith("# ") or (line.startswith("#") and "\t" not in line)):
            parts = line.split("\t")
            if len(parts) <= column:
                raise DataError(
                    f"{path}:{number}: {len(parts)} columns were found; expected at least {column + 1}, with tabs."
                )
            if parts[0].isdigit():
                tokens.append(parts[1])
                tags.append(parts[column])
    if tokens:
        yield Tagged(tokens, tags)


def find_splits(paths: Sequence[str | Path]) -> dict[str, Path]:
    """The train, dev and test file: three files in that order, a folder that holds them, or how their names begin.

    `treebanks/en_ewt` finds treebanks/en_ewt-ud-train.conllu and its fellows.
    """
    if len(paths) == 3:
        return {split: Path(path) for split, path in zip(SPLITS, paths, strict=True)}
    if len(paths) != 1:
        raise ConfigError(
            f"{len(paths)} paths were given.", "Give train, dev and test; or a folder; or how their names begin."
        )
    start = str(paths[0])
    pattern = f"{glob.escape(start)}/*" if Path(start).is_dir() else f"{glob.escape(start)}*"
    names = [Path(name) for name in sorted(glob.glob(pattern)) if Path(name).is_file()]
    found: dict[str, Path] = {}
    for split in SPLITS:
        having = [name for name in names if split in name.name.removeprefix(Path(start).name)]
        if len(having) != 1:
            seen = ", ".join(name.name for name in having) or "none"
            raise ConfigError(
                f"{start}: one {split} file was expected; seen: {seen}.",
                "Give how their names begin (treebanks/en_ewt), or the three files.",
            )
        found[split] = having[0]
    return found
