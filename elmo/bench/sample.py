"""Sentences to measure with: from a text file, or from the documentation that every Python installation includes."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.text.lines import read_lines
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import tokenizer

MIN_TOKENS, MAX_TOKENS = 3, 60


def sample_sentences(count: int, text: str | Path | None = None, *, tokenizer_name: str = "default") -> list[list[str]]:
    """At most `count` sentences of 3 to 60 tokens in a fixed random order.

    `text` is a file with one sentence per line; without it, the sentences are those of Python's language reference.
    """
    sentences = list(_python_reference()) if text is None else _read_sentences(Path(text), tokenizer_name)
    sentences = [sentence for sentence in sentences if MIN_TOKENS <= len(sentence) <= MAX_TOKENS]
    if not sentences:
        raise DataError(
            f"{text} has no sentence of {MIN_TOKENS} to {MAX_TOKENS} tokens.", "Give a file with one sentence per line."
        )
    order = np.random.default_rng(0).permutation(len(sentences))[:count]
    return [sentences[i] for i in order]


def _read_sentences(path: Path, tokenizer_name: str) -> list[list[str]]:
    split = tokenizer(tokenizer_name)
    return [[token.text for token in split(line)] for line in read_lines(path)]


@functools.cache
def _python_reference() -> tuple[list[str], ...]:
    from pydoc_data.topics import topics

    split = tokenizer("default")
    paragraphs = [p for text in topics.values() for p in text.split("\n\n") if p[:1].isalpha()]
    prose = [" ".join(p.split()) for p in paragraphs]
    return tuple([token.text for token in split(p[s.start : s.end])] for p in prose for s in split_sentences(p))
