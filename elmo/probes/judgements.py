"""Pairs of words in context that people judged, from the files such judgements are published in.

A word is marked in its context, `the <b>bank</b> of the river`; <strong> does as well. Three layouts are told apart:

- three columns with tabs: context, context, score;
- SCWS's ratings.txt (Huang et al. 2012): number, word, POS, word, POS, context, context, mean rating, ratings;
- CoSimLex (Armendariz et al. 2020): a line of heads, among them context1, context2, sim1 and sim2. Both words are
  marked in either context, and each context makes a pair with a score of its own.
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

_MARKED = re.compile(r"<(b|strong)>(.*?)</\1>")
_HINT = "Expected context, context and score with tabs, each word marked as in `the <b>bank</b> of the river`."


@dataclass(frozen=True)
class Place:
    """A word, or several, in a tokenised context: tokens[begin:end]."""

    tokens: tuple[str, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Judged:
    """Two words in context and how alike people find them."""

    places: tuple[Place, Place]
    score: float


def read_judgements(path: str | Path, *, limit: int | None = None) -> list[Judged]:
    """The pairs of a file in one of the layouts above, in its order."""
    pairs = list(islice(_pairs(Path(path)), limit))
    if len(pairs) < 3:
        raise DataError(f"{path}: {len(pairs)} pairs; a correlation needs at least 3.", _HINT)
    return pairs


def _pairs(path: Path) -> Iterator[Judged]:
    heads: dict[str, int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        parts = line.split("\t")
        where = f"{path}:{number}"
        if number == 1 and {"context1", "context2", "sim1", "sim2"} <= set(parts):
            heads = {head: column for column, head in enumerate(parts)}
        elif heads and line.strip():
            if len(parts) < len(heads):
                raise DataError(f"{where}: {len(parts)} columns; the first line names {len(heads)}.")
            for side in ("1", "2"):
                both = _places(parts[heads[f"context{side}"]], 2, where)
                yield Judged((both[0], both[1]), _score(parts[heads[f"sim{side}"]], where))
        elif line.strip():
            if len(parts) != 3 and not (len(parts) >= 8 and parts[0].isdigit()):
                raise DataError(f"{where}: {len(parts)} columns.", _HINT)
            first, second, score = parts if len(parts) == 3 else parts[5:8]
            yield Judged((_places(first, 1, where)[0], _places(second, 1, where)[0]), _score(score, where))


def _score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        raise DataError(f"{where}: the score is {text!r}; expected a number.", _HINT) from None
    if not math.isfinite(score):
        raise DataError(f"{where}: the score is {text!r}; expected a number.", _HINT)
    return score


def _places(context: str, wanted: int, where: str) -> list[Place]:
    """The marked words of a context: each stands where the pieces before it, tokenised, end."""
    marks = list(_MARKED.finditer(context))
    if len(marks) != wanted:
        raise DataError(f"{where}: {len(marks)} marked words in a context; expected {wanted}.", _HINT)
    tokenize = tokenizer("default")
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    done = 0
    for mark in marks:
        tokens += [token.text for token in tokenize(context[done : mark.start()])]
        begin = len(tokens)
        tokens += [token.text for token in tokenize(mark[2])]
        if begin == len(tokens):
            raise DataError(f"{where}: a mark without a word in it.", _HINT)
        spans.append((begin, len(tokens)))
        done = mark.end()
    tokens += [token.text for token in tokenize(context[done:])]
    return [Place(tuple(tokens), begin, end) for begin, end in spans]
