"""Questions about a passage whose answers are spans of it: SQuAD's JSON, characters mapped to tokens. No torch.

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ...,
        "answers": [{"text": ..., "answer_start": 515}]}]}]}]}

Tokens keep their places in the passage, so an answer found as tokens is cut from the raw text. A gold answer covers
every token it touches. A passage is cut once for all its questions. Hyphens and dashes inside a word are cut too, for
answers often begin or end there ("1066-1077").
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.lines import read_lines
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import Token, tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A gold answer: its text, where it starts in the context, and the tokens it touches, both included."""

    text: str
    start: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Example:
    """One question about one passage. `spans` are each passage token's characters in `context`, `lengths` the tokens
    of each of its sentences, in which a biLM reads it."""

    context: str
    passage: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]
    question: tuple[str, ...]
    question_text: str
    answers: tuple[Answer, ...] = ()  # none: not known
    id: str = ""
    title: str = ""

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.question, *self.passage_sentences)

    @property
    def passage_sentences(self) -> tuple[tuple[str, ...], ...]:
        ends = list(accumulate(self.lengths))
        return tuple(self.passage[end - length : end] for end, length in zip(ends, self.lengths, strict=True))

    def text_of(self, first: int, last: int) -> str:
        """The raw text of tokens first to last, both included."""
        return self.context[self.spans[first][0] : self.spans[last][1]]


def make_example(
    context: str, question: str, answers: Sequence[tuple[str, int]] = (), *, id: str = "", title: str = ""
) -> Example:
    """A question about a text, cut into tokens; answers are (text, start) pairs that lie inside it."""
    tokens = cut(context)
    return _make(context, tokens, sentence_lengths(context, tokens), question, answers, id, title, where="Here")


def read_examples(path: Path) -> list[Example]:
    """The questions of a file in order, each with its passage."""
    lines = list(read_lines(path))
    try:
        values = json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        number = getattr(error, "lineno", 1)
        raise DataError(f"{path}:{number}: the file is not JSON ({error}); expected SQuAD's layout.") from error
    examples = list(_questions(values, path, lines))
    if not examples:
        raise DataError(f"{path}: there is no question in this file; expected SQuAD's layout (data, paragraphs, qas).")
    impossible = sum(not example.answers for example in examples)
    if impossible:
        log.warning("%s: %d of %d questions have no answer in their passage.", path, impossible, len(examples))
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """SQuAD's JSON; reading it back gives the same examples."""
    articles: list[dict[str, Any]] = []
    for title, of_title in groupby(examples, key=lambda example: example.title):
        paragraphs = []
        for context, group in groupby(of_title, key=lambda example: example.context):
            questions = [
                {
                    "id": example.id,
                    "question": example.question_text,
                    "answers": [{"text": a.text, "answer_start": a.start} for a in example.answers],
                }
                for example in group
            ]
            paragraphs.append({"context": context, "qas": questions})
        articles.append({"title": title, "paragraphs": paragraphs})
    with atomic_file(path) as partial:
        partial.write_text(json.dumps({"version": "1.1", "data": articles}, indent=1) + "\n", encoding="utf-8")


_JOINED = re.compile("[-\u2010-\u2015~/]")  # cut out of words: 1066-1077, 1939\u201345, km/h


def cut(text: str) -> list[Token]:
    """Tokens of the default tokenizer, cut further at hyphens, dashes and slashes inside a word."""
    tokens: list[Token] = []
    for token in tokenizer("default")(text):
        start = token.start
        for match in _JOINED.finditer(token.text) if len(token.text) > 1 else ():
            place = token.start + match.start()
            if place > start:
                tokens.append(Token(text[start:place], start, place))
            tokens.append(Token(match[0], place, place + 1))
            start = place + 1
        if start < token.end:
            tokens.append(Token(text[start : token.end], start, token.end))
    return tokens


def sentence_lengths(text: str, tokens: Sequence[Token]) -> tuple[int, ...]:
    """How many of the tokens each sentence of the text has, sentences without any left out."""
    ends = [end for _, end in split_sentences(text)]
    counts = Counter(bisect_right(ends, token.start) for token in tokens)
    return tuple(counts[number] for number in sorted(counts))


@dataclass(frozen=True)
class _Place:
    """Where a question stands in the raw file, looked up only for an error: json.loads does not tell."""

    path: Path
    lines: list[str]
    title: str = ""
    id: str = ""

    def __str__(self) -> str:
        written = json.dumps(self.id, ensure_ascii=False)
        number = next((n for n, line in enumerate(self.lines, 1) if written in line), 1) if self.id else 1
        named = f" question {self.id!r}" if self.id else ""
        return f"{self.path}:{number}:{named}{f' of {self.title!r}' if self.title else ''}"


def _questions(values: Any, path: Path, lines: list[str]) -> Iterator[Example]:
    for article in _list(values, "data", "the file", _Place(path, lines)):
        title = str(article.get("title") or "") if isinstance(article, dict) else ""
        where = _Place(path, lines, title)
        for paragraph in _list(article, "paragraphs", "an article", where):
            context = _text(paragraph, "context", "a paragraph", where)
            tokens = cut(context)
            lengths = sentence_lengths(context, tokens)
            for values in _list(paragraph, "qas", "a paragraph", where):
                id = str(values.get("id") or "") if isinstance(values, dict) else ""
                here = _Place(path, lines, title, id)
                question = _text(values, "question", "a question", here)
                given = values.get("answers") or ()
                if not isinstance(given, list | tuple):
                    raise DataError(f"{here} answers is {type(given).__name__}; expected a list.")
                answers = [_answer(answer, here) for answer in given]
                yield _make(context, tokens, lengths, question, answers, id, title, where=here)


def _make(
    context: str,
    tokens: Sequence[Token],
    lengths: tuple[int, ...],
    question: str,
    answers: Sequence[tuple[str, int]],
    id: str,
    title: str,
    *,
    where: object,
) -> Example:
    words = cut(question)
    if not tokens or not words:
        raise DataError(f"{where} the {'question' if tokens else 'context'} is empty; expected some words.")
    return Example(
        context=context,
        passage=tuple(token.text for token in tokens),
        spans=tuple((token.start, token.end) for token in tokens),
        lengths=lengths,
        question=tuple(token.text for token in words),
        question_text=question,
        answers=tuple(_locate(context, tokens, text, start, where) for text, start in answers),
        id=id,
        title=title,
    )


def _locate(context: str, tokens: Sequence[Token], text: str, start: int, where: object) -> Answer:
    end = start + len(text)
    if start < 0 or end > len(context) or context[start:end] != text:
        found = context[max(start, 0) : max(end, 0)]
        raise DataError(
            f"{where} the answer {text!r} is not at character {start} of the context ({found!r} is).",
            "answer_start counts characters from 0; a change of the context after the fact moves them.",
        )
    touched = [place for place, token in enumerate(tokens) if token.start < end and token.end > start]
    if not touched:
        raise DataError(f"{where} the answer {text!r} at character {start} covers no word of the context.")
    return Answer(text=text, start=start, first=touched[0], last=touched[-1])


def _list(values: Any, key: str, what: str, where: object) -> list[Any]:
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, list):
        raise DataError(f"{where} {what} has no list {key!r}; expected SQuAD's layout (data, paragraphs, qas).")
    return found


def _text(values: Any, key: str, what: str, where: object) -> str:
    found = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(found, str):
        raise DataError(f"{where} {what} has no text {key!r}; expected SQuAD's layout (data, paragraphs, qas).")
    return found


def _answer(values: Any, where: object) -> tuple[str, int]:
    text = _text(values, "text", "an answer", where)
    start = values.get("answer_start")
    if type(start) is not int:
        raise DataError(f"{where} answer_start is {start!r}; expected the number of the answer's first character.")
    return text, start
