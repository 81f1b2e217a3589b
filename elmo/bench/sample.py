"""Sentences to measure with: of a file, or of the prose every Python installation carries."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.text.lines import read_lines
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import tokenizer

SHORTEST, LONGEST = 3, 60  # tokens


def sentences_for(count: int, text: str | Path | None = None, *, tokenizer_name: str = "default") -> list[list[str]]:
    """At most `count` sentences of 3 to 60 tokens in a fixed random order.

    `text` has a sentence a line; without it, the prose of Python's own language reference is taken.
    """
    found = list(_built_in()) if text is None else _of_file(Path(text), tokenizer_name)
    found = [sentence for sentence in found if SHORTEST <= len(sentence) <= LONGEST]
    if not found:
        raise DataError(f"{text} has no sentence of {SHORTEST} to {LONGEST} tokens.", "Give a sentence a line.")
    order = np.random.default_rng(0).permutation(len(found))[:count]
    return [found[i] for i in order]


def _of_file(path: Path, tokenizer_name: str) -> list[list[str]]:
    split = tokenizer(tokenizer_name)
    return [[token.text for token in split(line)] for line in read_lines(path)]


@functools.cache
def _built_in() -> tuple[list[str], ...]:
    from pydoc_data.topics import topics

    split = tokenizer("default")
    paragraphs = [p for text in topics.values() for p in text.split("\n\n") if p[:1].isalpha()]
    prose = [" ".join(p.split()) for p in paragraphs]
    return tuple([token.text for token in split(p[s.start : s.end])] for p in prose for s in split_sentences(p))
