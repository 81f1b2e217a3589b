"""Reader and writer of the coref task: documents with clusters of mentions, as JSON lines or columns. No torch.

    {"doc": ..., "genre": ..., "sentences": [["Ann", "left", "."], ...], "clusters": [[[0, 0], [4, 5]], ...]}
    #begin document (bc/cctv/00); part 000      the last column of a row has brackets: "(3", "3)", "(3)|(5", "-"

A mention is a pair (first, last) of tokens of the whole document, both included. Mentions may cross each other and
sentences, as real annotations do. A mention in two clusters is an error in JSON; in columns it is a warning, because
published corpora have a few. Genre and speakers are read if the file has them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import atomic_file
from elmo.text.columns import Row, check_widths, read_blocks, read_word
from elmo.text.json_lines import read_json_objects
from elmo.text.lines import read_lines

log = logging.getLogger(__name__)

Mention = tuple[int, int]  # first and last token in the document
Cluster = tuple[Mention, ...]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A document in sentences, and its clusters of mentions; clusters are None for unlabelled text."""

    sentences: tuple[tuple[str, ...], ...]
    clusters: tuple[Cluster, ...] | None = None
    doc: str = ""
    genre: str = ""
    speakers: tuple[str, ...] = ()  # one per token, or empty

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(token for sentence in self.sentences for token in sentence)


def read_examples(path: Path) -> list[Example]:
    """Reads the documents of a file: JSON lines if the file begins with "{", otherwise columns."""
    first = next((line for line in read_lines(path) if line.strip()), "")
    examples = list(_read_json(path) if first.lstrip().startswith("{") else _read_columns(path))
    if not examples:
        raise DataError(f"{path}: the file has no document; expected JSON lines or CoNLL-2012 columns.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Writes JSON lines; `read_examples` inverts it."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            values: dict[str, Any] = {"doc": example.doc, "genre": example.genre, "sentences": example.sentences}
            if example.speakers:
                values["speakers"] = list(_by_sentence(example.speakers, example.sentences))
            if example.clusters is not None:
                values["clusters"] = example.clusters
            file.write(json.dumps(values) + "\n")


def sorted_clusters(clusters: Iterable[Iterable[Mention]]) -> tuple[Cluster, ...]:
    """The clusters with mentions in the order of the text, in the order of their first mentions."""
    return tuple(sorted(tuple(sorted(cluster)) for cluster in clusters))


# ---- JSON lines ----------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> Iterator[Example]:
    for where, values in read_json_objects(path, hint="Expected one document, an object with sentences, per line."):
        sentences = _sentences(values.get("sentences"), where)
        yield Example(
            sentences=sentences,
            clusters=_clusters(values["clusters"], sum(map(len, sentences)), where) if "clusters" in values else None,
            doc=str(values.get("doc") or values.get("doc_key") or ""),
            genre=str(values.get("genre") or _genre(str(values.get("doc_key") or ""))),
            speakers=_speakers(values["speakers"], sentences, where) if values.get("speakers") else (),
        )


def _sentences(value: Any, where: str) -> tuple[tuple[str, ...], ...]:
    is_valid = isinstance(value, list) and all(
        isinstance(sentence, list) and all(isinstance(token, str) for token in sentence) for sentence in value
    )
    if not is_valid or not all(value) or not value:
        raise DataError(f"{where}: sentences is not a list of lists of words, or one of the lists is empty.")
    for number, sentence in enumerate(value, 1):
        if not all(sentence):
            raise DataError(f"{where}: sentence {number} has an empty word; expected at least one character per word.")
    return tuple(tuple(sentence) for sentence in value)


def _speakers(value: Any, sentences: tuple[tuple[str, ...], ...], where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or [len(s) for s in value if isinstance(s, list)] != [len(s) for s in sentences]:
        raise DataError(f"{where}: speakers does not have one name for each word of each sentence.")
    return tuple(str(name) for sentence in value for name in sentence)


def _clusters(value: Any, num_tokens: int, where: str) -> tuple[Cluster, ...]:
    if not isinstance(value, list):
        raise DataError(f"{where}: clusters is {type(value).__name__}; expected a list of lists of [first, last].")
    cluster_of: dict[Mention, int] = {}
    for number, cluster in enumerate(value):
        if not isinstance(cluster, list) or not cluster:
            raise DataError(f"{where}: cluster {number} is {cluster!r}; expected a list of [first, last].")
        for mention in cluster:
            is_pair = isinstance(mention, list) and len(mention) == 2 and all(type(n) is int for n in mention)
            if not is_pair or not 0 <= mention[0] <= mention[1] < num_tokens:
                raise DataError(
                    f"{where}: the mention {mention!r} is not a pair, or is outside the document's {num_tokens:,} "
                    "tokens.",
                    "Mentions are [first, last] tokens of the whole document, from 0, both included.",
                )
            first, last = mention
            if (first, last) in cluster_of:
                raise DataError(
                    f"{where}: the mention {mention} is in clusters {cluster_of[first, last]} and {number}."
                )
            cluster_of[first, last] = number
    return sorted_clusters([[(first, last) for first, last in cluster] for cluster in value])


# ---- columns -------------------------------------------------------------------------------------------------------

_BEGIN = re.compile(r"#\s*begin document\s*(?P<name>.*?)\s*$")
_BRACKET = re.compile(r"(?P<open>\()?(?P<id>\d+)(?P<close>\))?")


@dataclass
class _Document:
    """The part of a document that has been read so far."""

    name: str
    sentences: list[tuple[str, ...]]
    speakers: list[str]
    open_mentions: dict[str, list[tuple[int, int]]]  # cluster: (first token, line number) of each open mention
    clusters: dict[str, list[Mention]]
    num_tokens: int = 0


def _read_columns(path: Path) -> Iterator[Example]:
    document = _new_document("")
    for block in read_blocks(path):
        rows = block.rows
        for begin_number, text in block.comments:
            begin = _BEGIN.match(text)
            if begin is None:
                continue
            before = [row for row in rows if row.number < begin_number]  # no blank line ends the document before
            if before:
                _add_sentence(path, document, before)
            if document.sentences:
                yield _finished(path, document)
            document, rows = _new_document(begin["name"]), rows[len(before) :]
        if rows:
            _add_sentence(path, document, rows)
    if document.sentences:
        yield _finished(path, document)


def _new_document(name: str) -> _Document:
    return _Document(name=name, sentences=[], speakers=[], open_mentions={}, clusters={})


def _add_sentence(path: Path, document: _Document, rows: list[Row]) -> None:
    check_widths(path, rows)
    width = len(rows[0].columns)
    if width < 3:
        raise DataError(f"{path}:{rows[0].number}: the row has {width} columns; expected number, word, coreference.")
    is_conll2012 = width >= 12  # document, part, number, word, ..., with the speaker in the tenth column
    document.sentences.append(tuple(read_word(path, row, 3 if is_conll2012 else 1) for row in rows))
    if is_conll2012:
        document.speakers += [row.columns[9] for row in rows]
    for row in rows:
        if row.columns[-1].strip() not in ("-", "_", "*", ""):
            _add_brackets(path, document, row)
        document.num_tokens += 1


def _add_brackets(path: Path, document: _Document, row: Row) -> None:
    text = row.columns[-1].strip().replace("|", "")
    position = 0
    while position < len(text):
        match = _BRACKET.match(text, position)
        if match is None or not (match["open"] or match["close"]):
            raise DataError(
                f"{path}:{row.number}: {row.columns[-1]!r} is not valid in a coreference column; expected '-', '(3', "
                "'3)' or '(3)'."
            )
        position = match.end()
        open_mentions = document.open_mentions.setdefault(match["id"], [])
        if match["open"]:
            open_mentions.append((document.num_tokens, row.number))
        if match["close"]:
            if not open_mentions:
                raise DataError(f"{path}:{row.number}: {match['id']}) closes a mention that was never opened.")
            mention = (open_mentions.pop()[0], document.num_tokens)
            other = next((id for id, cluster in document.clusters.items() if mention in cluster), None)
            if other is not None:  # the reference scorer removes such a mention too
                log.warning(
                    "%s:%d: tokens %d to %d are in clusters %s and %s; only the first cluster is used.",
                    *(path, row.number, *mention, other, match["id"]),
                )
                continue
            document.clusters.setdefault(match["id"], []).append(mention)


def _finished(path: Path, document: _Document) -> Example:
    for id, open_mentions in document.open_mentions.items():
        if open_mentions:
            raise DataError(f"{path}:{open_mentions[-1][1]}: ({id} is opened and not closed before the document ends.")
    name = re.sub(r"^\(([^)]*)\);?", r"\1", document.name)
    speakers = document.speakers if any(speaker not in ("-", "*", "_") for speaker in document.speakers) else ()
    return Example(
        sentences=tuple(document.sentences),
        clusters=sorted_clusters(document.clusters.values()),
        doc=name,
        genre=_genre(name),
        speakers=tuple(speakers),
    )


def _genre(name: str) -> str:
    """The genre in a document's name: first in OntoNotes ("bc/cctv/00/..."), second in GUM ("GUM_news_crane")."""
    match = re.match(r"([a-z]{2})/|[A-Z]+_([a-z]+)_", name)
    return (match[1] or match[2]) if match else ""


def _by_sentence(values: tuple[str, ...], sentences: tuple[tuple[str, ...], ...]) -> Iterator[list[str]]:
    start = 0
    for sentence in sentences:
        yield list(values[start : start + len(sentence)])
        start += len(sentence)
