"""The sentences of an input file: its lines, or the sentences into which its lines are split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from elmo.embed.dump.options import DumpOptions
from elmo.text.lines import read_lines
from elmo.text.sentences import split_lines


def read_input(source: str | Path, options: DumpOptions, rules: str) -> Iterator[str]:
    """The sentences of the input file; `rules` are those of `split_sentences`."""
    return iter(to_sentences(read_lines(source, encoding=options.encoding, errors=options.errors), options, rules))


def to_sentences(lines: Iterable[str], options: DumpOptions, rules: str) -> Iterable[str]:
    """The lines themselves, or their sentences if they are paragraphs."""
    return split_lines(lines, rules) if options.paragraphs else lines
