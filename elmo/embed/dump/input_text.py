"""The sentences of an input file: its lines, or the sentences into which its lines are split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from elmo.embed.dump.options import DumpOptions
from elmo.text.lines import read_lines
from elmo.text.sentences import split_sentences


def read_input(source: str | Path, options: DumpOptions, rules: str) -> Iterator[str]:
    """The sentences of the input; `rules` are those of `split_sentences`, for lines that are paragraphs."""
    lines = read_lines(source, encoding=options.encoding, errors=options.errors)
    return split_lines(lines, rules) if options.paragraphs else lines


def split_lines(lines: Iterable[str], rules: str) -> Iterator[str]:
    """The sentences of every line, in order; an empty line has none."""
    for line in lines:
        for start, end in split_sentences(line, rules):
            yield line[start:end]
