"""Reader and writer of the squad task: SQuAD's JSON, with character offsets mapped to tokens. No torch.

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ...,
        "answers": [{"text": ..., "answer_start": 515}]}]}]}]}

Tokens store their character offsets in the passage, so that a predicted span of tokens becomes a span of the raw text.
A gold answer covers every token that it overlaps. A passage is tokenised once for all its questions. Words are also
split at hyphens and dashes, because answers often begin or end there ("1066-1077").
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
from elmo.files import atomic_file, parse_json
from elmo.text.json_lines import read_json_lines
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import Token, Tokenizer, tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A gold answer: its text, its first character in the context, and its first and last token, both included."""

    text: str
    start: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Example:
    """One question about one passage.

    `spans` are the (start, end) characters of each passage token in `context`. `lengths` are the numbers of tokens of
    the sentences of the passage, which a frozen biLM reads one by one.
    """

    context: str
    passage: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]
    question: tuple[str, ...]
    question_text: str
    answers: tuple[Answer, ...] = ()  # empty for unlabelled text
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
    context: str,
    question: str,
    answers: Sequence[tuple[str, int]] = (),
    *,
    id: str = "",
    title: str = "",
    tokenize_words: Tokenizer | None = None,  # None: default
) -> Example:
    """Tokenises a question and its passage; answers are pairs of a text and its first character in the context."""
    tokenize_words = tokenize_words or tokenizer("default")
    tokens = tokenize(context, tokenize_words)
    lengths = sentence_lengths(context, tokens)
    return _build_example(context, tokens, lengths, question, tokenize_words, answers, id, title, where="The example:")


def read_examples(path: Path, tokenizer_name: str = "default") -> list[Example]:
    """Reads the questions of a file in order, each with its passage."""
    lines = list(read_json_lines(path))
    hint = "Expected SQuAD's layout (data, paragraphs, qas)."
    values = parse_json("\n".join(lines).encode(), str(path), hint=hint)
    examples = list(_read_questions(values, path, lines, tokenizer(tokenizer_name)))
    if not examples:
        raise DataError(f"{path}: the file has no question; expected SQuAD's layout (data, paragraphs, qas).")
    num_unanswered = sum(not example.answers for example in examples)
    if num_unanswered:
        log.warning("%s: %d of %d questions have no answer in their passage.", path, num_unanswered, len(examples))
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Writes SQuAD's JSON; `read_examples` inverts it."""
    articles: list[dict[str, Any]] = []
    for title, of_title in groupby(examples, key=lambda example: example.title):
        paragraphs = []
        for context, of_context in groupby(of_title, key=lambda example: example.context):
            questions = [
                {
                    "id": example.id,
                    "question": example.question_text,
                    "answers": [{"text": a.text, "answer_start": a.start} for a in example.answers],
                }
                for example in of_context
            ]
            paragraphs.append({"context": context, "qas": questions})
        articles.append({"title": title, "paragraphs": paragraphs})
    with atomic_file(path) as partial:
        partial.write_text(json.dumps({"version": "1.1", "data": articles}, indent=1) + "\n", encoding="utf-8")


_SEPARATOR = re.compile("[-\u2010-\u2015~/]")  # a token of its own inside words: 1066-1077, 1939\u201345, km/h


def tokenize(text: str, tokenize_words: Tokenizer) -> list[Token]:
    """Tokens of a tokenizer, split further at hyphens, dashes and slashes inside a word."""
    tokens: list[Token] = []
    for token in tokenize_words(text):
        start = token.start
        for match in _SEPARATOR.finditer(token.text) if len(token.text) > 1 else ():
            separator = token.start + match.start()
            if separator > start:
                tokens.append(Token(text[start:separator], start, separator))
            tokens.append(Token(match[0], separator, separator + 1))
            start = separator + 1
        if start < token.end:
            tokens.append(Token(text[start : token.end], start, token.end))
    return tokens


def sentence_lengths(text: str, tokens: Sequence[Token]) -> tuple[int, ...]:
    """The number of tokens of each sentence of the text, without empty sentences."""
    ends = [end for _, end in split_sentences(text)]
    counts = Counter(bisect_right(ends, token.start) for token in tokens)
    return tuple(counts[number] for number in sorted(counts))


@dataclass(frozen=True)
class _Location:
    """The location of a question in the file, for error messages; json.loads does not report line numbers."""

    path: Path
    lines: list[str]
    title: str = ""
    id: str = ""

    def __str__(self) -> str:
        quoted_id = json.dumps(self.id, ensure_ascii=False)
        number = next((n for n, line in enumerate(self.lines, 1) if quoted_id in line), 1) if self.id else 1
        question = f" question {self.id!r}" if self.id else ""
        return f"{self.path}:{number}:{question}{f' of {self.title!r}' if self.title else ''}"


def _read_questions(values: Any, path: Path, lines: list[str], tokenize_words: Tokenizer) -> Iterator[Example]:
    for article in _list(values, "data", "the file", _Location(path, lines)):
        title = str(article.get("title") or "") if isinstance(article, dict) else ""
        where = _Location(path, lines, title)
        for paragraph in _list(article, "paragraphs", "an article", where):
            context = _text(paragraph, "context", "a paragraph", where)
            tokens = tokenize(context, tokenize_words)
            lengths = sentence_lengths(context, tokens)
            for qa in _list(paragraph, "qas", "a paragraph", where):
                id = str(qa.get("id") or "") if isinstance(qa, dict) else ""
                location = _Location(path, lines, title, id)
                question = _text(qa, "question", "a question", location)
                answers = qa.get("answers") or ()
                if not isinstance(answers, list | tuple):
                    raise DataError(f"{location} answers is {type(answers).__name__}; expected a list.")
                pairs = [_answer(answer, location) for answer in answers]
                yield _build_example(
                    context, tokens, lengths, question, tokenize_words, pairs, id, title, where=location
                )


def _build_example(
    context: str,
    tokens: Sequence[Token],
    lengths: tuple[int, ...],
    question: str,
    tokenize_words: Tokenizer,
    answers: Sequence[tuple[str, int]],
    id: str,
    title: str,
    *,
    where: object,
) -> Example:
    question_tokens = tokenize(question, tokenize_words)
    if not tokens or not question_tokens:
        raise DataError(f"{where} the {'question' if tokens else 'context'} is empty; expected at least one word.")
    return Example(
        context=context,
        passage=tuple(token.text for token in tokens),
        spans=tuple((token.start, token.end) for token in tokens),
        lengths=lengths,
        question=tuple(token.text for token in question_tokens),
        question_text=question,
        answers=tuple(_locate(context, tokens, text, start, where) for text, start in answers),
        id=id,
        title=title,
    )


def _locate(context: str, tokens: Sequence[Token], text: str, start: int, where: object) -> Answer:
    """The answer with its first and last token."""
    end = start + len(text)
    if start < 0 or end > len(context) or context[start:end] != text:
        actual = context[max(start, 0) : max(end, 0)]
        raise DataError(
            f"{where} the answer {text!r} is not at character {start} of the context, which has {actual!r} there.",
            "answer_start counts characters from 0; an edit of the context changes the offsets.",
        )
    overlapping = [index for index, token in enumerate(tokens) if token.start < end and token.end > start]
    if not overlapping:
        raise DataError(f"{where} the answer {text!r} at character {start} covers no word of the context.")
    return Answer(text=text, start=start, first=overlapping[0], last=overlapping[-1])


def _list(values: Any, key: str, owner: str, where: object) -> list[Any]:
    items = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(items, list):
        raise DataError(f"{where} {owner} has no list {key!r}; expected SQuAD's layout (data, paragraphs, qas).")
    return items


def _text(values: Any, key: str, owner: str, where: object) -> str:
    text = values.get(key) if isinstance(values, Mapping) else None
    if not isinstance(text, str):
        raise DataError(f"{where} {owner} has no text {key!r}; expected SQuAD's layout (data, paragraphs, qas).")
    return text


def _answer(values: Any, where: object) -> tuple[str, int]:
    text = _text(values, "text", "an answer", where)
    start = values.get("answer_start")
    if type(start) is not int:
        raise DataError(f"{where} answer_start is {start!r}; expected the number of the answer's first character.")
    return text, start
