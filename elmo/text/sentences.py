"""Splits documents into sentences, as spans of the raw text; the step before `tokenize`.

A blank line always ends a sentence; a single line break counts as whitespace. Which stops end a sentence is decided by
the rules for English (`english_stops`) or for any language (`unicode_stops`); a tokenizer chooses its rules. Each
decision examines a bounded distance around the stop, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from elmo.errors import ConfigError
from elmo.text import english_stops, stop_context, unicode_stops

_RULES = {"english": english_stops, "unicode": unicode_stops}


class Span(NamedTuple):
    """Offsets of one sentence: text[start:end], without whitespace around it."""

    start: int
    end: int


def split_sentences(text: str, rules: str = "english") -> list[Span]:
    """The span of each sentence in `text`; spans are not empty, and only whitespace is between them.

    `rules`: english, or unicode for other languages. In text without any capital letter, a sentence may also start with
    a small letter.
    """
    if rules not in _RULES:
        raise ConfigError(f"There are no rules {rules!r} for sentences.", f"Expected one of {', '.join(_RULES)}.")
    lower_starts = text.lower() == text
    spans: list[Span] = []
    start = 0
    for blank in _BLANK_LINE.finditer(text):
        spans += _split_paragraph(rules, text, start, blank.start(), lower_starts)
        start = blank.end()
    spans += _split_paragraph(rules, text, start, len(text), lower_starts)
    return spans


def split_lines(lines: Iterable[str], rules: str = "english") -> Iterator[str]:
    """The sentences of every line, in order; an empty line has none."""
    for line in lines:
        for start, end in split_sentences(line, rules):
            yield line[start:end]


def sentence_rules(tokenizer_name: str) -> str:
    """The rules that belong to a tokenizer: those for any language, unless its language is English or not named."""
    language = tokenizer_name.partition(":")[2]
    return "unicode" if tokenizer_name == "unicode" or language not in ("", "en") else "english"


_BLANK_LINE = re.compile(r"\n[^\S\n]*\n|\r[^\S\r\n]*\r|[\f\u2029]")


def _split_paragraph(rules: str, text: str, start: int, end: int, lower_starts: bool) -> Iterator[Span]:
    for match in _RULES[rules].STOP.finditer(text, start, end):
        if _ends_sentence(rules, text, start, match, end, lower_starts):
            yield from _trim(text, start, match.end())
            start = match.end()
    yield from _trim(text, start, end)


def _ends_sentence(rules: str, text: str, start: int, match: re.Match[str], end: int, lower_starts: bool) -> bool:
    """Whether the stop ends a sentence; the paragraph begins or the last sentence ended at `start`."""
    if match["hard"]:
        return True
    following = stop_context.sentence_start(text, match.end(), end, lower_starts)
    if following is None:
        return False
    if match["soft"] != ".":
        return True
    ends: bool = _RULES[rules].full_stop_ends_sentence(text, start, match.start(), following)
    return ends


def _trim(text: str, start: int, end: int) -> Iterator[Span]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    if left < len(piece):
        yield Span(start + left, start + len(piece.rstrip()))
