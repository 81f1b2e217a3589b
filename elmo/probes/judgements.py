"""Reader of human similarity judgements: pairs of words in context with a score, in three published layouts.

A word is marked in its context: `the <b>bank</b> of the river`; <strong> is accepted too. The reader recognises:

- three tab-separated columns: context, context, score;
- SCWS's ratings.txt (Huang et al. 2012): number, word, POS, word, POS, context, context, mean rating, ratings;
- CoSimLex (Armendariz et al. 2020): a header line with context1, context2, sim1 and sim2 among its names. Both words
  are marked in each context, and each context makes one pair with its own score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elmo.errors import DataError
from elmo.text.lines import read_lines
from elmo.text.tokenize import tokenizer

_MARKED_WORD = re.compile(r"<(b|strong)>(.*?)</\1>")
_HINT = "Expected context, context and score, separated by tabs; words are marked: `the <b>bank</b> of the river`."


@dataclass(frozen=True)
class WordInContext:
    """One or more words in a tokenised context: tokens[begin:end]."""

    tokens: tuple[str, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class JudgedPair:
    """Two words in context and their similarity score from human annotators."""

    words: tuple[WordInContext, WordInContext]
    score: float


def read_judgements(path: str | Path, *, limit: int | None = None) -> list[JudgedPair]:
    """Reads the pairs of a file in one of the layouts above, in the order of the file."""
    pairs = list(islice(_read_pairs(Path(path)), limit))
    if len(pairs) < 3:
        raise DataError(f"{path}: {len(pairs)} pairs; a correlation needs at least 3.", _HINT)
    return pairs


def _read_pairs(path: Path) -> Iterator[JudgedPair]:
    header: dict[str, int] = {}  # column name: column number
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        where = f"{path}:{number}"
        if number == 1 and {"context1", "context2", "sim1", "sim2"} <= set(columns):
            header = {name: column for column, name in enumerate(columns)}
        elif header and line.strip():
            if len(columns) < len(header):
                raise DataError(f"{where}: {len(columns)} columns; the header line names {len(header)}.")
            for side in ("1", "2"):
                words = _marked_words(columns[header[f"context{side}"]], 2, where)
                yield JudgedPair((words[0], words[1]), _score(columns[header[f"sim{side}"]], where))
        elif line.strip():
            if len(columns) != 3 and not (len(columns) >= 8 and columns[0].isdigit()):
                raise DataError(f"{where}: {len(columns)} columns.", _HINT)
            context1, context2, score = columns if len(columns) == 3 else columns[5:8]
            words = [_marked_words(context, 1, where)[0] for context in (context1, context2)]
            yield JudgedPair((words[0], words[1]), _score(score, where))


def _score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        raise DataError(f"{where}: the score is {text!r}; expected a number.", _HINT) from None
    if not math.isfinite(score):
        raise DataError(f"{where}: the score is {text!r}; expected a number.", _HINT)
    return score


def _marked_words(context: str, expected: int, where: str) -> list[WordInContext]:
    """The marked words of a context; text and marked words are tokenised separately, so that a mark ends a token."""
    marks = list(_MARKED_WORD.finditer(context))
    if len(marks) != expected:
        raise DataError(f"{where}: {len(marks)} marked words in a context; expected {expected}.", _HINT)
    tokenize = tokenizer("default")
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    end_of_mark = 0
    for mark in marks:
        tokens += [token.text for token in tokenize(context[end_of_mark : mark.start()])]
        begin = len(tokens)
        tokens += [token.text for token in tokenize(mark[2])]
        if begin == len(tokens):
            raise DataError(f"{where}: a mark contains no word.", _HINT)
        spans.append((begin, len(tokens)))
        end_of_mark = mark.end()
    tokens += [token.text for token in tokenize(context[end_of_mark:])]
    return [WordInContext(tuple(tokens), begin, end) for begin, end in spans]
