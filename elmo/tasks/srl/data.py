"""Reader and writer of the srl task: predicates and arguments in columns of CoNLL-2005 or CoNLL-2012. No torch.

    get  VB  (VP*  get  get.01  (V*)      CoNLL-2005: the word in the first column; one column that names each predicate
    it   PRP (NP*) -    -       (A1*)     ("-": none); after it one column of arguments per predicate
    bc/cctv/00 0 3 get VB (VP* get 01 1 speaker * (V*) -     CoNLL-2012: arguments from column 12 to the last but one

An example is one predicate in its sentence. Arguments do not overlap; they are converted to IOB2 tags, including the
predicate's "V". A sentence without a predicate has no example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.columns import Row, check_widths, read_blocks, read_word
from elmo.text.spans import Span, spans_of_tags, tags_of_spans

_ARGUMENT = re.compile(r"(?:\([^*()\s]+)?\*\)?")
_BRACKETS = re.compile(r"(?:\((?P<label>[^*()\s]+))?\*(?P<close>[^()*\s]*\))?")


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence, one of its predicates, and the tag of each token; tags are None for unlabelled text."""

    tokens: tuple[str, ...]
    predicate: int  # index of its token
    tags: tuple[str, ...] | None = None
    pos: str = ""  # part of speech of the predicate, if the file has it: VB* are verbs
    sense: str = ""  # roleset or lemma, as written in the file
    sentence: int = field(default=0, compare=False)  # number in the file; the same for all examples of one sentence

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.tokens,)


def read_examples(path: Path) -> list[Example]:
    """Reads the predicates of a file, in the order of sentences and columns."""
    examples: list[Example] = []
    for number, block in enumerate(read_blocks(path)):
        if block.rows:
            check_widths(path, block.rows)
            reader = _conll2012 if _is_conll2012(block.rows) else _conll2005
            examples += reader(path, block.rows, number)
    if not examples:
        raise DataError(f"{path}: the file has no predicate; expected CoNLL-2005 or CoNLL-2012 columns.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Writes CoNLL-2005 columns: word, part of speech of predicates, their sense or "-", and arguments.

    `read_examples` inverts it if the examples of one sentence are adjacent and in the order of their predicates.
    """
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for _, of_sentence in groupby(examples, key=lambda example: (example.sentence, example.tokens)):
            file.write(_format_sentence(list(of_sentence)) + "\n\n")


def _format_sentence(examples: Sequence[Example]) -> str:
    tokens = examples[0].tokens
    columns = [list(tokens), ["-"] * len(tokens), ["-"] * len(tokens)]
    for example in examples:
        columns[1][example.predicate] = example.pos or "-"
        columns[2][example.predicate] = example.sense or "+"
        column = ["*"] * len(tokens)
        for label, first, last in spans_of_tags(example.tags or ()):
            column[first] = f"({label}*"
            column[last] += ")"
        columns.append(column)
    return "\n".join("\t".join(row) for row in zip(*columns, strict=True))


def _is_conll2012(rows: list[Row]) -> bool:
    """Whether the second and the third column are numbers: part of the document, and number of the word.

    In CoNLL-2005 these are part of speech and parse, or predicate and arguments.
    """
    first_row = rows[0].columns
    return len(first_row) >= 12 and first_row[1].isdigit() and first_row[2].isdigit()


def _conll2012(path: Path, rows: list[Row], number: int) -> Iterator[Example]:
    start = 1 if rows[0].columns[2] == "1" else 0  # OntoNotes counts from 0, some converters from 1
    for expected, row in enumerate(rows, start):
        if row.columns[2] != str(expected):
            raise DataError(
                f"{path}:{row.number}: the number of the word is {row.columns[2]!r}; expected {expected}.",
                "The third column of CoNLL-2012 numbers the words of each sentence from 0 or 1; a blank line ends it.",
            )
    tokens = tuple(read_word(path, row, 3) for row in rows)
    for column in range(11, len(rows[0].columns) - 1):
        spans = _argument_spans(path, rows, column)
        predicate = _predicate(path, rows, column, spans)
        columns = rows[predicate].columns
        sense = columns[6] + (f".{columns[7]}" if columns[7] != "-" else "")
        tags = tags_of_spans(spans, len(tokens))
        yield Example(tokens=tokens, predicate=predicate, tags=tags, pos=columns[4], sense=sense, sentence=number)


def _conll2005(path: Path, rows: list[Row], number: int) -> Iterator[Example]:
    width = len(rows[0].columns)
    # the column of the predicates is the last one that does not consist of brackets and stars
    sense_column = max(
        (c for c in range(width) if not all(_ARGUMENT.fullmatch(r.columns[c]) for r in rows)), default=-1
    )
    if sense_column < 1:
        raise DataError(
            f"{path}:{rows[0].number}: there is no column of words before the predicates; expected word ... predicate "
            "arguments.",
            "CoNLL-2005 has words and props in two files: combine them with `paste words props`.",
        )
    predicates = [index for index, row in enumerate(rows) if row.columns[sense_column] != "-"]
    num_argument_columns = width - sense_column - 1
    if len(predicates) != num_argument_columns:
        raise DataError(
            f"{path}:{rows[0].number}: column {sense_column + 1} names {len(predicates)} predicates, and "
            f"{num_argument_columns} columns of arguments follow; expected one column per predicate.",
        )
    tokens = tuple(read_word(path, row, 0) for row in rows)
    for named, column in zip(predicates, range(sense_column + 1, width), strict=True):
        spans = _argument_spans(path, rows, column)
        predicate = _predicate(path, rows, column, spans, named)
        pos = rows[named].columns[1] if sense_column > 1 else ""
        yield Example(
            tokens=tokens,
            predicate=predicate,
            tags=tags_of_spans(spans, len(tokens)),
            pos="" if pos == "-" else pos,
            sense=rows[named].columns[sense_column],
            sentence=number,
        )


def _predicate(path: Path, rows: list[Row], column: int, spans: Sequence[Span], named: int | None = None) -> int:
    """The token of the predicate: the one that the file names, if the span V includes it, else the first of V."""
    verbs = [span for span in spans if span.label == "V"]
    if len(verbs) != 1:
        raise DataError(
            f"{path}:{rows[0].number}: column {column + 1} of this sentence has {len(verbs)} predicates (V*); expected "
            "exactly one.",
        )
    is_covered = named is not None and verbs[0].first <= named <= verbs[0].last
    return named if named is not None and is_covered else verbs[0].first


def _argument_spans(path: Path, rows: list[Row], column: int) -> list[Span]:
    """The spans that a column of brackets marks as "(LABEL* ... *)", in order. Arguments may not be nested."""
    spans: list[Span] = []
    opened: tuple[str, int] | None = None  # label and first token of the open argument
    for index, row in enumerate(rows):
        match = _BRACKETS.fullmatch(row.columns[column])
        if match is None:
            raise DataError(
                f"{path}:{row.number}: {row.columns[column]!r} is not valid in a column of arguments; expected '*', "
                "'(A0*', '*)' or '(A0*)'."
            )
        label, closes = match["label"], match["close"]
        if label is not None and opened is not None:
            raise DataError(f"{path}:{row.number}: ({label}* opens inside ({opened[0]}*; arguments may not be nested.")
        if closes and label is None and opened is None:
            raise DataError(f"{path}:{row.number}: '*)' closes an argument, but none is open.")
        if label is not None:
            opened = (label, index)
        if closes and opened is not None:
            spans.append(Span(opened[0], opened[1], index))
            opened = None
    if opened is not None:
        raise DataError(
            f"{path}:{rows[opened[1]].number}: ({opened[0]}* is never closed; expected a '*)' in the same sentence."
        )
    return spans
