"""Documents and which of their words mean the same thing: JSON lines, and CoNLL-2012's coreference column. No torch.

    {"doc": ..., "genre": ..., "sentences": [["Ann", "left", "."], ...], "clusters": [[[0, 0], [4, 5]], ...]}
    #begin document (bc/cctv/00); part 000      rows of a word end in a column of brackets: "(3", "3)", "(3)|(5", "-"

Mentions are tokens of the whole document, first to last, both included. Mentions may cross each other and sentences
(real annotations do). One that stands in two clusters is an error in JSON, and in columns, where published corpora have
a few, a warning. Genre and speakers are kept where the file has them.
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
from elmo.text.columns import Row, check_widths, read_blocks
from elmo.text.lines import read_lines

log = logging.getLogger(__name__)

Mention = tuple[int, int]  # first and last token in the document
Cluster = tuple[Mention, ...]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A document in sentences, and its clusters of mentions; None: not known."""

    sentences: tuple[tuple[str, ...], ...]
    clusters: tuple[Cluster, ...] | None = None
    doc: str = ""
    genre: str = ""
    speakers: tuple[str, ...] = ()  # one a token, or none at all

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(token for sentence in self.sentences for token in sentence)


def read_examples(path: Path) -> list[Example]:
    """The documents of a file; .jsonl (or any file that begins with "{") holds one a line, others are columns."""
    first = next((line for line in read_lines(path) if line.strip()), "")
    examples = list(_read_json(path) if first.lstrip().startswith("{") else _read_columns(path))
    if not examples:
        raise DataError(f"{path}: there is no document in this file; expected JSON lines or CoNLL-2012 columns.")
    return examples


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """JSON lines; reading it back gives the same examples."""
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            values: dict[str, Any] = {"doc": example.doc, "genre": example.genre, "sentences": example.sentences}
            if example.speakers:
                values["speakers"] = list(_by_sentence(example.speakers, example.sentences))
            if example.clusters is not None:
                values["clusters"] = example.clusters
            file.write(json.dumps(values) + "\n")


def sorted_clusters(clusters: Iterable[Iterable[Mention]]) -> tuple[Cluster, ...]:
    """Mentions in the order of the text, clusters in the order of their first mentions."""
    return tuple(sorted(tuple(sorted(cluster)) for cluster in clusters))


# ---- JSON lines ----------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> Iterator[Example]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: the line is not JSON ({error}); expected one document a line.") from error
        if not isinstance(values, dict):
            raise DataError(f"{where}: the line is {type(values).__name__}; expected an object with sentences.")
        sentences = _sentences(values.get("sentences"), where)
        yield Example(
            sentences=sentences,
            clusters=_clusters(values["clusters"], sum(map(len, sentences)), where) if "clusters" in values else None,
            doc=str(values.get("doc") or values.get("doc_key") or ""),
            genre=str(values.get("genre") or _genre(str(values.get("doc_key") or ""))),
            speakers=_speakers(values["speakers"], sentences, where) if values.get("speakers") else (),
        )


def _sentences(given: Any, where: str) -> tuple[tuple[str, ...], ...]:
    right = isinstance(given, list) and all(isinstance(s, list) and all(isinstance(t, str) for t in s) for s in given)
    if not right or not all(given) or not given:
        raise DataError(f"{where}: sentences is no list of lists of words, or has an empty one.")
    return tuple(tuple(sentence) for sentence in given)


def _speakers(given: Any, sentences: tuple[tuple[str, ...], ...], where: str) -> tuple[str, ...]:
    if not isinstance(given, list) or [len(s) for s in given if isinstance(s, list)] != [len(s) for s in sentences]:
        raise DataError(f"{where}: speakers does not have one name for each word of each sentence.")
    return tuple(str(name) for sentence in given for name in sentence)


def _clusters(given: Any, num_tokens: int, where: str) -> tuple[Cluster, ...]:
    if not isinstance(given, list):
        raise DataError(f"{where}: clusters is {type(given).__name__}; expected a list of lists of [first, last].")
    seen: dict[Mention, int] = {}
    for place, cluster in enumerate(given):
        if not isinstance(cluster, list) or not cluster:
            raise DataError(f"{where}: cluster {place} is {cluster!r}; expected a list of [first, last].")
        for mention in cluster:
            pair = isinstance(mention, list) and len(mention) == 2 and all(type(n) is int for n in mention)
            if not pair or not 0 <= mention[0] <= mention[1] < num_tokens:
                raise DataError(
                    f"{where}: the mention {mention!r} is outside the document's {num_tokens:,} tokens or no pair.",
                    "Mentions are [first, last] tokens of the whole document, from 0, both included.",
                )
            first, last = mention
            if (first, last) in seen:
                raise DataError(f"{where}: the mention {mention} stands in clusters {seen[first, last]} and {place}.")
            seen[first, last] = place
    return sorted_clusters([[(first, last) for first, last in cluster] for cluster in given])


# ---- columns -------------------------------------------------------------------------------------------------------

_BEGIN = re.compile(r"#\s*begin document\s*(?P<name>.*?)\s*$")
_PART = re.compile(r"(?P<open>\()?(?P<id>\d+)(?P<close>\))?")


@dataclass
class _Document:
    """What has been read of a document so far."""

    name: str
    sentences: list[tuple[str, ...]]
    speakers: list[str]
    opened: dict[str, list[tuple[int, int]]]  # cluster: the mentions still open, as (token, line)
    clusters: dict[str, list[Mention]]
    num_tokens: int = 0


def _read_columns(path: Path) -> Iterator[Example]:
    document = _new_document("")
    for block in read_blocks(path):
        begin = next((match for _, text in block.comments if (match := _BEGIN.match(text))), None)
        if begin and document.sentences:
            yield _finished(path, document)
        if begin:
            document = _new_document(begin["name"])
        if block.rows:
            _add_sentence(path, document, block.rows)
    if document.sentences:
        yield _finished(path, document)


def _new_document(name: str) -> _Document:
    return _Document(name=name, sentences=[], speakers=[], opened={}, clusters={})


def _add_sentence(path: Path, document: _Document, rows: list[Row]) -> None:
    check_widths(path, rows)
    width = len(rows[0].columns)
    if width < 3:
        raise DataError(f"{path}:{rows[0].number}: the row has {width} columns; expected number, word, coreference.")
    full = width >= 12  # CoNLL-2012: document, part, number, word, ..., speaker in the tenth
    document.sentences.append(tuple(row.columns[3 if full else 1] for row in rows))
    if full:
        document.speakers += [row.columns[9] for row in rows]
    for row in rows:
        if row.columns[-1].strip() not in ("-", "_", "*", ""):
            _add_brackets(path, document, row)
        document.num_tokens += 1


def _add_brackets(path: Path, document: _Document, row: Row) -> None:
    text = row.columns[-1].strip().replace("|", "")
    place = 0
    while place < len(text):
        match = _PART.match(text, place)
        if match is None or not (match["open"] or match["close"]):
            raise DataError(
                f"{path}:{row.number}: {row.columns[-1]!r} is no coreference column; expected '-', '(3', '3)' or '(3)'."
            )
        opened = document.opened.setdefault(match["id"], [])
        if match["open"]:
            opened.append((document.num_tokens, row.number))
        if match["close"]:
            if not opened:
                raise DataError(f"{path}:{row.number}: {match['id']}) closes a mention that was never opened.")
            mention = (opened.pop()[0], document.num_tokens)
            taken = next((id for id, cluster in document.clusters.items() if mention in cluster), None)
            if taken is not None:  # the reference scorer drops such a one too
                log.warning(
                    "%s:%d: tokens %d to %d stand in clusters %s and %s; they are kept in the first.",
                    *(path, row.number, *mention, taken, match["id"]),
                )
                place = match.end()
                continue
            document.clusters.setdefault(match["id"], []).append(mention)
        place = match.end()


def _finished(path: Path, document: _Document) -> Example:
    for id, opened in document.opened.items():
        if opened:
            raise DataError(f"{path}:{opened[-1][1]}: ({id} is opened and not closed before the document ends.")
    name = re.sub(r"^\(([^)]*)\);?", r"\1", document.name)
    spoken = document.speakers if any(speaker not in ("-", "*", "_") for speaker in document.speakers) else ()
    return Example(
        sentences=tuple(document.sentences),
        clusters=sorted_clusters(document.clusters.values()),
        doc=name,
        genre=_genre(name),
        speakers=tuple(spoken),
    )


def _genre(name: str) -> str:
    """OntoNotes' names begin with it ("bc/cctv/00/..."), GUM's have it second ("GUM_news_crane")."""
    match = re.match(r"([a-z]{2})/|[A-Z]+_([a-z]+)_", name)
    return (match[1] or match[2]) if match else ""


def _by_sentence(values: tuple[str, ...], sentences: tuple[tuple[str, ...], ...]) -> Iterator[list[str]]:
    start = 0
    for sentence in sentences:
        yield list(values[start : start + len(sentence)])
        start += len(sentence)
