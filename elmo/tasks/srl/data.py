"""Predicates and their arguments in columns: CoNLL-2005 and CoNLL-2012. The first step of the srl task; no torch.

    get  VB  (VP*  get  get.01  (V*)      CoNLL-2005: the word first; before the arguments a column with the
    it   PRP (NP*) -    -       (A1*)     name of each predicate ("-": none); then one column of arguments a predicate
    bc/cctv/00 0 3 get VB (VP* get 01 1 speaker * (V*) -     CoNLL-2012: arguments from the twelfth column to the last

An example is one predicate in its sentence. Arguments do not overlap and become IOB2 tags, the predicate's "V" among
them. Sentences without a predicate give no example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.columns import Block, Row, check_widths, read_blocks, spans_of_brackets
from elmo.text.spans import spans_of_tags, tags_of_spans

_ARGUMENT = re.compile(r"(?:\([^*()\s]+)?\*\)?")


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence, one of its predicates, and the tag of each token for it; tags None: not known."""

    tokens: tuple[str, ...]
    predicate: int  # its token
    tags: tuple[str, ...] | None = None
    pos: str = ""  # part of speech of the predicate, where the file has it: VB* are verbs
    sense: str = ""  # roleset or lemma, as written in the file
    sentence: int = field(default=0, compare=False)  # number in the file: examples of one sentence share it

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.tokens,)


def read_examples(path: Path) -> list[Example]:
    """The predicates of a file, in order of their sentences and columns."""
    examples: list[Example] = []
    for number, block in enumerate(read_blocks(path)):
        if block.rows:
            check_widths(path, block.rows)
            reader = _conll2012 if _is_conll2012(block) else _conll2005
            examples += reader(path, block.rows, number)
    if not examples:
        raise DataError(f"{path}: there is no predicate in this file; expected CoNLL-2005 or CoNLL-2012 columns.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """CoNLL-2005 columns: word, part of speech of predicates, their sense or "-", and arguments.

    Reading it back gives the same examples, where those of one sentence stand together in order of their predicates.
    """
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for _, group in groupby(examples, key=lambda example: (example.sentence, example.tokens)):
            file.write(_rows_of(list(group)) + "\n\n")


def _rows_of(group: Sequence[Example]) -> str:
    tokens = group[0].tokens
    columns = [list(tokens), ["-"] * len(tokens), ["-"] * len(tokens)]
    for example in group:
        columns[1][example.predicate] = example.pos or "-"
        columns[2][example.predicate] = example.sense or "+"
        column = ["*"] * len(tokens)
        for label, first, last in spans_of_tags(example.tags or ()):
            column[first] = f"({label}*"
            column[last] += ")"
        columns.append(column)
    return "\n".join("\t".join(row) for row in zip(*columns, strict=True))


def _is_conll2012(block: Block) -> bool:
    first = block.rows[0].columns
    numbered = len(first) >= 12 and all(row.columns[2] == str(n) for n, row in enumerate(block.rows))
    return numbered and first[1].isdigit()


def _conll2012(path: Path, rows: list[Row], number: int) -> Iterator[Example]:
    tokens = tuple(row.columns[3] for row in rows)
    for column in range(11, len(rows[0].columns) - 1):
        spans = spans_of_brackets(path, rows, column)
        predicate = _predicate(path, rows, column, spans)
        marked = rows[predicate].columns
        sense = marked[6] + (f".{marked[7]}" if marked[7] != "-" else "")
        tags = tags_of_spans(spans, len(tokens))
        yield Example(tokens=tokens, predicate=predicate, tags=tags, pos=marked[4], sense=sense, sentence=number)


def _conll2005(path: Path, rows: list[Row], number: int) -> Iterator[Example]:
    width = len(rows[0].columns)
    # the predicates' column is the last that is not made of brackets and stars
    named = max((c for c in range(width) if not all(_ARGUMENT.fullmatch(r.columns[c]) for r in rows)), default=-1)
    if named < 1:
        raise DataError(
            f"{path}:{rows[0].number}: there is no column of words before the predicates; expected word ... predicate "
            "arguments.",
            "CoNLL-2005 keeps words and props in two files: put them side by side with `paste words props`.",
        )
    predicates = [place for place, row in enumerate(rows) if row.columns[named] != "-"]
    if len(predicates) != width - named - 1:
        raise DataError(
            f"{path}:{rows[0].number}: {len(predicates)} predicates are named in column {named + 1} and "
            f"{width - named - 1} columns of arguments follow; expected one for each.",
        )
    tokens = tuple(row.columns[0] for row in rows)
    for marked, column in zip(predicates, range(named + 1, width), strict=True):
        spans = spans_of_brackets(path, rows, column)
        predicate = _predicate(path, rows, column, spans, marked)
        pos = rows[marked].columns[1] if named > 1 else ""
        yield Example(
            tokens=tokens,
            predicate=predicate,
            tags=tags_of_spans(spans, len(tokens)),
            pos="" if pos == "-" else pos,
            sense=rows[marked].columns[named],
            sentence=number,
        )


def _predicate(
    path: Path, rows: list[Row], column: int, spans: Sequence[tuple[str, int, int]], marked: int | None = None
) -> int:
    """Where V stands; where the file names the predicate itself, that token, if V covers it."""
    verbs = [(first, last) for label, first, last in spans if label == "V"]
    if len(verbs) != 1:
        raise DataError(
            f"{path}:{rows[0].number}: column {column + 1} of this sentence has {len(verbs)} predicates (V*); expected "
            "exactly one.",
        )
    first, last = verbs[0]
    return marked if marked is not None and first <= marked <= last else first
