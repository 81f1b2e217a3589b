"""Readers of sense-tagged text: SemCor, the evaluation sets of Raganato et al. (2017), and WordNet's list of senses.

A target is a span of words: multiword expressions ("took_place", "old age") are split into their words, because no
model was trained on joined words. The Penn Treebank's quotes and brackets are unescaped.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import DAMAGE, open_bytes
from elmo.schema import ANY, List, check_shape, find_problem
from elmo.text.json_lines import read_json_objects
from elmo.text.lines import read_lines
from elmo.text.penn_treebank import PTB_BRACKETS

Lemma = tuple[str, str]  # lemma in lower case with _ between its words, and part of speech: n, v, a or r

POS_OF_KEY = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}  # the digit after % in a sense key
POS_OF_TAG = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}
_SENSE_KEY = re.compile("[^%]*%[1-5]")
_UNESCAPED = {"``": '"', "''": '"', **PTB_BRACKETS}


@dataclass(frozen=True)
class Target:
    """The words begin:end of a sentence, which have one lemma and one or more gold senses."""

    begin: int
    end: int
    lemma: Lemma
    senses: tuple[str, ...]  # WordNet sense keys, any of which is correct


@dataclass(frozen=True)
class SenseText:
    """A sentence and its targets."""

    tokens: list[str]
    targets: list[Target]


def lemma_of(sense: str) -> Lemma:
    """The lemma of a sense key: took_place%2:30:00:: has the lemma (took_place, v)."""
    word, _, rest = sense.partition("%")
    if rest[:1] not in POS_OF_KEY:
        raise DataError(f"{sense!r} is not a WordNet sense key.", "Expected a key like bank%1:17:01::.")
    return word.lower(), POS_OF_KEY[rest[0]]


def read_semcor(path: str | Path, *, limit: int | None = None) -> Iterator[SenseText]:
    """Yields SemCor's sentences from JSON lines of [form, lemma, POS, sense keys], or from Raganato's XML."""
    if ".xml" in Path(path).suffixes:
        yield from islice(read_raganato(path), limit)
        return
    for where, sentence in islice(read_json_objects(path, hint=_SEMCOR_HINT), limit):
        check_shape(sentence, {"tokens": List(List(ANY, least=1))}, where, hint=_SEMCOR_HINT)
        yield _sense_text(_semcor_word(token, where) for token in sentence["tokens"])


_SEMCOR_HINT = 'Expected JSON lines {"tokens": [[form, lemma, POS, sense keys], ...]}.'


def _semcor_word(token: list[Any], where: str) -> tuple[str, list[tuple[Lemma, tuple[str, ...]]]]:
    keys = (token[3] if len(token) > 3 else None) or []
    if problem := find_problem(token[0], str) or find_problem(keys, List(str)):
        raise DataError(f"{where}: in the token {str(token)[:80]}, {problem}.", _SEMCOR_HINT)
    try:
        return token[0], [(lemma_of(keys[0]), tuple(keys))] if keys else []
    except DataError as error:
        raise DataError(f"{where}: {error.message}", error.hint) from error


def read_raganato(path: str | Path) -> Iterator[SenseText]:
    """Yields the sentences of NAME.data.xml, with the gold senses from NAME.gold.key.txt in the same folder."""
    path = Path(path)
    gold_path = path.with_name(path.name.replace(".data.xml", ".gold.key.txt"))
    gold = _read_gold(gold_path)
    try:
        with open_bytes(path) as file:
            for _, element in ElementTree.iterparse(file):
                if element.tag == "sentence":
                    yield _sense_text(_word(word, gold, path) for word in element)
                    element.clear()
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: not well-formed XML ({error}).") from error
    except DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason}).", "It is truncated or damaged; copy it again.") from error


def _read_gold(path: Path) -> dict[str, tuple[str, ...]]:
    """The gold senses of each instance of an evaluation set."""
    gold: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), 1):
        name, *senses = line.split() or [""]
        if not name:
            continue
        if not senses or not all(map(_SENSE_KEY.match, senses)):
            raise DataError(
                f"{path}:{number}: the senses of {name!r} are {' '.join(senses)!r}; expected sense keys of WordNet.",
                "A line has the id of an instance and its senses: d000.s000.t000 bank%1:17:01::",
            )
        if name in gold:
            raise DataError(f"{path}:{number}: the instance {name!r} has senses in an earlier line too.")
        gold[name] = tuple(senses)
    return gold


def _word(
    word: ElementTree.Element, gold: dict[str, tuple[str, ...]], path: Path
) -> tuple[str, list[tuple[Lemma, tuple[str, ...]]]]:
    if word.tag != "instance":
        return word.text or "", []
    name = word.get("id", "")
    if name not in gold:
        raise DataError(f"{path}: the instance {name!r} has no sense in the gold file of the same folder.")
    lemma, tag = word.get("lemma", "").lower().replace(" ", "_"), word.get("pos", "")
    if tag not in POS_OF_TAG:
        raise DataError(f"{path}: the instance {name!r} has pos {tag!r}; expected one of {', '.join(POS_OF_TAG)}.")
    return word.text or "", [((lemma, POS_OF_TAG[tag]), gold[name])]


def _sense_text(words: Iterable[tuple[str, Sequence[tuple[Lemma, tuple[str, ...]]]]]) -> SenseText:
    tokens: list[str] = []
    targets: list[Target] = []
    for form, lemmas in words:
        begin = len(tokens)
        tokens += split_form(form)
        targets += [Target(begin, len(tokens), lemma, senses) for lemma, senses in lemmas]
    return SenseText(tokens, targets)


def split_form(form: str) -> list[str]:
    """Splits a form into its words as they are written in running text; never empty."""
    if form in _UNESCAPED:
        return [_UNESCAPED[form]]
    return form.replace("_", " ").split() or [form or "_"]


class WordNet:
    """The senses of each lemma in WordNet's order, from index.sense: the first is the most frequent."""

    def __init__(self, senses: dict[Lemma, list[str]]) -> None:
        self.senses = senses

    def first_sense(self, lemma: Lemma) -> str | None:
        """The most frequent sense of the lemma; None if WordNet does not have the lemma."""
        senses = self.senses.get(lemma)
        return senses[0] if senses else None


def read_wordnet(path: str | Path) -> WordNet:
    """Reads WordNet's file index.sense; its columns are sense key, synset, sense number and count."""
    numbered: dict[Lemma, list[tuple[int, str]]] = {}  # (sense number, sense key)
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split()
        if len(columns) < 3 or not re.fullmatch("[0-9]{1,9}", columns[2]) or not _SENSE_KEY.match(columns[0]):
            raise DataError(f"{path}:{number}: {line[:60]!r} is not a line of WordNet's index.sense.")
        numbered.setdefault(lemma_of(columns[0]), []).append((int(columns[2]), columns[0]))
    return WordNet({lemma: [key for _, key in sorted(keys)] for lemma, keys in numbered.items()})
