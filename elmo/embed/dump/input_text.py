"""The sentences of an input file: its lines, or the sentences into which its lines are split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from elmo.embed.dump.options import DumpOptions
from elmo.text.inputs import LONG_SENTENCE
from elmo.text.lines import read_lines
from elmo.text.sentences import split_lines


def read_input(source: str | Path, options: DumpOptions, rules: str) -> Iterator[str]:
    """The sentences of the input file; `rules` are those of `split_sentences`."""
    return iter(to_sentences(read_lines(source, encoding=options.encoding, errors=options.errors), options, rules))


def to_sentences(lines: Iterable[str], options: DumpOptions, rules: str) -> Iterable[str]:
    """The lines themselves, or their sentences if they are paragraphs."""
    return split_lines(lines, rules) if options.paragraphs else lines


def long_line_warning(sentences: Iterable[Sequence[str]], first_line: int, advice: str) -> str | None:
    """A warning for the first line that is so long that it is probably a document; `first_line` counts from 0."""
    for number, tokens in enumerate(sentences, first_line + 1):
        if len(tokens) > LONG_SENTENCE:
            return f"line {number:,} has {len(tokens):,} tokens and is read as one sentence. {advice}"
    return None
