"""Sentiment trees in brackets, one a line, every phrase with its label: "(3 (2 It) (4 works))". No torch.

The Stanford Sentiment Treebank's format. Labels are 0 (very negative) to 4 (very positive). "-LRB-", "\\/" and their
like are undone, so that the biLM sees "(" and "/".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.lines import read_lines

LABELS = ("0", "1", "2", "3", "4")
_SYMBOL = re.compile(r"[()]|[^ \t()]+")  # a no-break space is part of a word: "3 1/2"
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """Tokens first to last, both included, one node of the tree with its label; is_word: a leaf with its word."""

    first: int
    last: int
    label: int
    is_word: bool


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence (or one phrase), its label, and all nodes of its tree, the root first, parents before children."""

    tokens: tuple[str, ...]
    label: int | None = None  # 0 to 4
    phrases: tuple[Phrase, ...] = ()

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.tokens,)


def read_examples(path: Path) -> list[Example]:
    """The sentences of a file of trees."""
    examples = [_read_tree(line, f"{path}:{number}") for number, line in enumerate(read_lines(path), 1) if line.strip()]
    if not examples:
        raise DataError(f"{path}: there is no tree in this file; expected lines like (3 (2 It) (4 works)).")
    return examples


def phrases_of(examples: Iterable[Example]) -> list[Example]:
    """Every different phrase of the examples with its label, sentences among them, in order: training on phrases."""
    found: dict[Example, None] = {}
    for example in examples:
        for phrase in example.phrases:
            found[Example(tokens=example.tokens[phrase.first : phrase.last + 1], label=phrase.label)] = None
        if not example.phrases:
            found[example] = None
    return list(found)


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Trees, one a line; reading it back gives the same examples."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            if not example.phrases:
                raise DataError(f"{' '.join(example.tokens)!r} has no tree to write.")
            file.write(_write_tree(example.tokens, example.phrases) + "\n")


def _read_tree(line: str, where: str) -> Example:
    """One pass over the symbols with a stack of the open nodes."""
    tokens: list[str] = []
    nodes: list[tuple[int, int, int, bool]] = []  # first, last, label, is_word
    opened: list[int] = []  # places in `nodes`
    after_open = closed = False
    for symbol in _SYMBOL.findall(line):
        if closed:
            raise DataError(f"{where}: {symbol!r} follows the end of the tree; expected one tree a line.")
        if symbol == "(":
            if opened and (nodes[opened[-1]][3] or after_open):
                raise DataError(f"{where}: a node has no label or a word besides its parts; expected (LABEL ...).")
            opened.append(len(nodes))
            nodes.append((len(tokens), -1, -1, False))
            after_open = True
        elif symbol == ")":
            place = opened.pop() if opened else -1
            if place < 0 or after_open or nodes[place][0] == len(tokens):
                raise DataError(f"{where}: ')' closes an empty node or none at all; expected (LABEL word).")
            nodes[place] = (nodes[place][0], len(tokens) - 1, *nodes[place][2:])
            closed = not opened
        elif after_open:
            if symbol not in LABELS:
                raise DataError(f"{where}: the label is {symbol!r}; expected 0, 1, 2, 3 or 4.")
            nodes[opened[-1]] = (len(tokens), -1, int(symbol), False)
            after_open = False
        else:
            if not opened or nodes[opened[-1]][0] != len(tokens):
                raise DataError(f"{where}: {symbol!r} is a word outside a node of its own; expected (LABEL word).")
            nodes[opened[-1]] = (*nodes[opened[-1]][:3], True)
            tokens.append(_unescape(symbol))
    if not closed:
        raise DataError(f"{where}: the tree is cut short ({len(opened)} brackets are open); expected (3 (2 It) ...).")
    phrases = tuple(Phrase(first=a, last=b, label=label, is_word=word) for a, b, label, word in nodes)
    return Example(tokens=tuple(tokens), label=phrases[0].label, phrases=phrases)


def _write_tree(tokens: Sequence[str], phrases: Sequence[Phrase]) -> str:
    """Brackets from nodes in order: a node closes before the first node that lies behind it."""
    text = ""
    opened: list[Phrase] = []
    for phrase in phrases:
        while opened and (opened[-1].is_word or opened[-1].last < phrase.first):
            opened.pop()
            text += ")"
        text += f"{' ' if text else ''}({phrase.label}"
        text += f" {_escape(tokens[phrase.first])}" if phrase.is_word else ""
        opened.append(phrase)
    return text + ")" * len(opened)


def _unescape(word: str) -> str:
    return _BRACKETS.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def _escape(word: str) -> str:
    for written, meant in _BRACKETS.items():
        word = word.replace(meant, written)
    return word
