"""Reader and writer of the sst task: one bracketed sentiment tree per line, "(3 (2 It) (4 works))", or TSV. No torch.

Trees are the format of the Stanford Sentiment Treebank. Every phrase has a label from 0 (very negative) to 4 (very
positive). Escapes such as "-LRB-" and "\\/" are unescaped, so that the biLM reads "(" and "/". A .tsv file has a text
and its label on each line, separated by a tab, in either order.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import DataError
from elmo.files import COMPRESSED, atomic_file
from elmo.text.lines import read_lines
from elmo.text.penn_treebank import PTB_BRACKETS
from elmo.text.tokenize import Tokenizer, tokenizer

log = logging.getLogger(__name__)

LABELS = ("0", "1", "2", "3", "4")
_GLUE_HEADER = ["sentence", "label"]
_SYMBOL = re.compile(r"[()]|[^ \t()]+")  # a no-break space is part of a word: "3 1/2"


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """One node of the tree with its label: tokens first to last, both included; `is_word` is true for a leaf."""

    first: int
    last: int
    label: int
    is_word: bool


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence or a phrase, its label, and all nodes of its tree: the root first, parents before children."""

    tokens: tuple[str, ...]
    label: int | None = None  # 0 to 4
    phrases: tuple[Phrase, ...] = ()

    @property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        return (self.tokens,)


def read_examples(path: Path, tokenizer_name: str = "default") -> list[Example]:
    """Reads the sentences of a file of trees, or of a .tsv file of texts and labels; the texts are tokenised."""
    if [suffix for suffix in Path(path).suffixes if suffix not in COMPRESSED][-1:] == [".tsv"]:
        return _read_tsv(path, tokenizer(tokenizer_name))
    examples = [_read_tree(line, f"{path}:{number}") for number, line in enumerate(read_lines(path), 1) if line.strip()]
    if not examples:
        raise DataError(f"{path}: the file has no tree; expected lines like (3 (2 It) (4 works)).")
    return examples


def _read_tsv(path: Path, tokenize: Tokenizer) -> list[Example]:
    """The texts and labels of a .tsv file; its first line, which may be a header, says which column has the label."""
    examples: list[Example] = []
    label_column, header = None, None
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("\t")]
        where = f"{path}:{number}"
        if len(fields) != 2 or not all(fields):
            raise DataError(f"{where}: expected a text and a label, separated by a tab.")
        if label_column is None:
            header = fields if "label" in fields else None
            label_column = header.index("label") if header else int(fields[1] in LABELS)
            if header:
                continue
        label = fields[label_column]
        if label not in LABELS:
            raise DataError(
                f"{where}: the label is {label[:40]!r}; expected 0, 1, 2, 3 or 4.",
                "The first line decides whether text or label comes first; it may be a header with a column 'label'.",
            )
        tokens = tuple(token.text for token in tokenize(fields[1 - label_column]))
        examples.append(Example(tokens=tokens, label=int(label)))
    if not examples:
        raise DataError(f"{path}: the file has no text; expected lines of a text and a label, separated by a tab.")
    if {example.label for example in examples} == {0, 1}:
        _explain_two_classes(path, is_glue=header == _GLUE_HEADER)
    return examples


def _explain_two_classes(path: Path, *, is_glue: bool) -> None:
    """Refuses SST-2 of GLUE, whose labels 0 and 1 have another meaning; warns of another file with these labels."""
    problem = f"{path}: all labels are 0 or 1, which mean very negative and negative here, of five classes"
    remedy = "If they mean negative and positive, write 4 in place of 1; binary_accuracy is then that of two classes."
    if is_glue:
        raise DataError(f"{problem}; the header is that of SST-2 in GLUE, which has two classes.", remedy)
    log.warning("%s. %s", problem, remedy)


def phrases_of(examples: Iterable[Example]) -> list[Example]:
    """Every distinct pair of a phrase and its label, including whole sentences, in order. Used as training examples."""
    distinct: dict[Example, None] = {}
    for example in examples:
        for phrase in example.phrases:
            distinct[Example(tokens=example.tokens[phrase.first : phrase.last + 1], label=phrase.label)] = None
        if not example.phrases:
            distinct[example] = None
    return list(distinct)


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Writes one tree per line; `read_examples` inverts it."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            if not example.phrases:
                raise DataError(f"{' '.join(example.tokens)!r} has no tree to write.")
            file.write(_write_tree(example.tokens, example.phrases) + "\n")


def _read_tree(line: str, where: str) -> Example:
    """Parses a tree in one pass over its symbols, with a stack of the open nodes."""
    tokens: list[str] = []
    nodes: list[tuple[int, int, int, bool]] = []  # first, last, label, is_word
    open_nodes: list[int] = []  # indices into `nodes`
    expects_label = is_complete = False
    for symbol in _SYMBOL.findall(line):
        if is_complete:
            raise DataError(f"{where}: {symbol!r} follows the end of the tree; expected one tree per line.")
        if symbol == "(":
            if open_nodes and (nodes[open_nodes[-1]][3] or expects_label):
                raise DataError(f"{where}: a node has no label, or both a word and children; expected (LABEL ...).")
            open_nodes.append(len(nodes))
            nodes.append((len(tokens), -1, -1, False))
            expects_label = True
        elif symbol == ")":
            index = open_nodes.pop() if open_nodes else -1
            if index < 0 or expects_label or nodes[index][0] == len(tokens):
                raise DataError(f"{where}: ')' closes an empty node or no node; expected (LABEL word).")
            nodes[index] = (nodes[index][0], len(tokens) - 1, *nodes[index][2:])
            is_complete = not open_nodes
        elif expects_label:
            if symbol not in LABELS:
                raise DataError(f"{where}: the label is {symbol!r}; expected 0, 1, 2, 3 or 4.")
            nodes[open_nodes[-1]] = (len(tokens), -1, int(symbol), False)
            expects_label = False
        else:
            if not open_nodes or nodes[open_nodes[-1]][0] != len(tokens):
                raise DataError(f"{where}: the word {symbol!r} is not in a node of its own; expected (LABEL word).")
            nodes[open_nodes[-1]] = (*nodes[open_nodes[-1]][:3], True)
            tokens.append(_unescape(symbol))
    if not is_complete:
        raise DataError(
            f"{where}: the tree is incomplete ({len(open_nodes)} brackets are open); expected (3 (2 It) ...)."
        )
    phrases = tuple(Phrase(first=a, last=b, label=label, is_word=word) for a, b, label, word in nodes)
    return Example(tokens=tuple(tokens), label=phrases[0].label, phrases=phrases)


def _write_tree(tokens: Sequence[str], phrases: Sequence[Phrase]) -> str:
    """The tree in brackets; a node is closed before the first node that is not one of its descendants."""
    text = ""
    open_nodes: list[Phrase] = []
    for phrase in phrases:
        while open_nodes and (open_nodes[-1].is_word or open_nodes[-1].last < phrase.first):
            open_nodes.pop()
            text += ")"
        text += f"{' ' if text else ''}({phrase.label}"
        text += f" {_escape(tokens[phrase.first])}" if phrase.is_word else ""
        open_nodes.append(phrase)
    return text + ")" * len(open_nodes)


def _unescape(word: str) -> str:
    return PTB_BRACKETS.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def _escape(word: str) -> str:
    for escaped, bracket in PTB_BRACKETS.items():
        word = word.replace(bracket, escaped)
    return word
