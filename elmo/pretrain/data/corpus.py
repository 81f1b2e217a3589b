"""Files of text into sentences of tokens, streamed: the start of the pretraining path.

By default a line is a sentence and its tokens stand between spaces, as the reference reads them. With a tokenizer's
name a line is a paragraph of raw text, cut into sentences and tokens here. Blank lines are no sentences. For parallel
work a corpus is a run of `Piece`s, each of whole lines; where they are cut depends on the files alone, never on how
many workers read them.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elmo.errors import ConfigError, DataError
from elmo.files import COMPRESSED
from elmo.text.lines import MAX_LINE_BYTES, read_lines
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import default_pattern, tokenizer
from elmo.text.vocab import BOS, EOS, UNK

log = logging.getLogger(__name__)

PIECE_BYTES = 8 << 20
_ESCAPED = {word: word.replace("<", "&lt;").replace(">", "&gt;") for word in (BOS, EOS, UNK)}


@dataclass(frozen=True)
class Source:
    """One input file."""

    path: str
    size: int  # bytes on disk
    stream: bool = False  # standard input ("-") or a pipe: read once, its size not known before

    @property
    def plain(self) -> bool:
        """Whether any byte range can be read on its own."""
        return not self.stream and Path(self.path).suffix not in COMPRESSED


class Piece(NamedTuple):
    """Whole lines of one source: those that begin in bytes start..end of a plain file, or the text itself."""

    source: int  # position in the list of sources
    path: str
    start: int
    end: int
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How text becomes sentences of tokens."""

    tokenize: str | None = None  # None: one tokenised sentence a line; or default, whitespace, spacy:LANG, moses:LANG
    specials: str = "refuse"  # <S>, </S>, <UNK> as words of the text: refuse; escape; keep <UNK> as an unknown word
    errors: str = "strict"  # text that is not UTF-8 and damaged or empty files: strict; replace bytes; skip the file

    def __post_init__(self) -> None:
        for name, known in (("specials", ("refuse", "escape", "keep")), ("errors", ("strict", "replace", "skip"))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is {getattr(self, name)!r}.", f"Expected one of {', '.join(known)}.")
        if self.tokenize is not None:
            tokenizer(self.tokenize)  # an unknown name is said before any work


def find_sources(patterns: Iterable[str | Path]) -> list[Source]:
    """The files that names and globs stand for, each once: globs sorted, in the order they were asked for."""
    if isinstance(patterns, (str, Path)):
        patterns = [patterns]
    found: dict[str, Source] = {}
    for pattern in map(str, patterns):
        for path in _expand(pattern):
            key = path if path == "-" else os.path.realpath(path)
            if key in found:
                log.warning("%s is named twice; it is read once.", path)
                continue
            stream = not os.path.isfile(path)
            found[key] = Source(path, 0 if stream else _size(path), stream)
    if not found:
        raise ConfigError("No text files were named.", "Name files or globs, or - for standard input.")
    return list(found.values())


def read_sentences(patterns: Iterable[str | Path], reading: Reading | None = None) -> Iterator[list[str]]:
    """All sentences of all files, one after the other, in bounded memory; a special token is refused with file:line."""
    reading = reading or Reading()
    cut = sentence_cutter(reading)
    errors = "replace" if reading.errors == "replace" else "strict"
    for source in find_sources(patterns):
        try:
            for number, line in enumerate(read_lines(source.path, errors=errors), start=1):  # type: ignore[arg-type]  # one of the two
                for tokens in cut(line):
                    if special := next((token for token in tokens if token in _refused(reading)), None):
                        raise special_error(source.path, number, special)
                    yield tokens
        except DataError as error:
            if reading.errors != "skip":
                raise
            log.warning("%s is left out from here on: %s", source.path, error.message)


def sentence_cutter(reading: Reading) -> Callable[[str], Iterator[list[str]]]:
    """A function from lines of text to their sentences, empty ones left out; special words are escaped if asked."""
    cut = _tokenised if reading.tokenize is None else _raw_cutter(reading.tokenize)
    if reading.specials != "escape":
        return cut

    def escaping(text: str) -> Iterator[list[str]]:
        for tokens in cut(text):
            yield [_ESCAPED.get(token, token) for token in tokens]

    return escaping


def pieces(
    sources: Sequence[Source],
    piece_bytes: int = PIECE_BYTES,
    *,
    replace: bool = False,
    on_bad: Callable[[int, DataError], None] | None = None,
) -> Iterator[list[Piece]]:
    """The whole corpus as jobs of about piece_bytes bytes, small files together.

    Plain files are cut by byte ranges that a worker reads itself; the others are decompressed here. `on_bad` gets the
    error of a source that cannot be decoded here, and its remaining text is left out; without it the error is raised.
    `replace`: bytes that are not UTF-8 become U+FFFD.
    """
    job: list[Piece] = []
    held = 0
    for number, source in enumerate(sources):
        parts = _ranges(number, source, piece_bytes) if source.plain else _texts(number, source, piece_bytes, replace)
        try:
            for piece in parts:
                job.append(piece)
                held += piece.end - piece.start
                if held >= piece_bytes:
                    yield job
                    job, held = [], 0
        except DataError as error:
            if on_bad is None:
                raise
            on_bad(number, error)
    if job:
        yield job


def read_piece(piece: Piece, errors: str = "strict") -> str:
    """The text of a piece, lines separated by newlines; bytes that are not UTF-8 are named by file, line and byte."""
    if piece.text is not None:
        return piece.text
    data = _read_range(piece)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if errors == "replace":
            return data.decode(errors="replace")
        for _ in read_lines(piece.path):  # slow, and it names the place
            pass
        raise DataError(f"{piece.path}: changed while it was read.") from error


def find_special(piece: Piece, reading: Reading, words: Iterable[str]) -> DataError | None:
    """The error for the first of a source's refused special tokens, when `words` holds one."""
    if not (refused := _refused(reading).intersection(words)):
        return None
    cut = sentence_cutter(reading)
    if os.path.isfile(piece.path):
        for number, line in enumerate(read_lines(piece.path, errors="replace"), start=1):
            for tokens in cut(line):
                if special := next((token for token in tokens if token in refused), None):
                    return special_error(piece.path, number, special)
    return special_error(piece.path, None, min(refused))


def special_error(path: str, line: int | None, special: str) -> DataError:
    place = path if line is None else f"{path}:{line}"
    return DataError(
        f"{place}: the word {special} means a sentence boundary or an unknown word to the model.",
        "Sentences get their boundaries by themselves: take it out of the text, or choose specials=escape to read it "
        "as other text" + (" (keep: as an unknown word)." if special == UNK else "."),
    )


def _refused(reading: Reading) -> frozenset[str]:
    return frozenset({"refuse": (BOS, EOS, UNK), "keep": (BOS, EOS), "escape": ()}[reading.specials])


def _expand(pattern: str) -> list[str]:
    if os.path.isdir(pattern):
        raise DataError(f"{pattern} is a folder.", f"Name its files: '{os.path.join(pattern, '*')}'.")
    if pattern == "-" or os.path.exists(pattern):
        return [pattern]
    found = [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]
    if not found:
        raise DataError(f"{pattern}: no such file.", "Check the name; a glob may be quoted or not.")
    return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def _tokenised(text: str) -> Iterator[list[str]]:
    return filter(None, map(str.split, text.split("\n")))


def _raw_cutter(name: str) -> Callable[[str], Iterator[list[str]]]:
    find = default_pattern().findall if name == "default" else None  # twice as quick as making offsets nobody reads
    tokens_of = tokenizer(name)

    def cut(text: str) -> Iterator[list[str]]:
        for line in text.split("\n"):
            for start, end in split_sentences(line):
                sentence = line[start:end]
                tokens = find(sentence) if find else [token.text for token in tokens_of(sentence)]
                if tokens:
                    yield tokens

    return cut


def _ranges(number: int, source: Source, piece_bytes: int) -> Iterator[Piece]:
    for start in range(0, source.size, piece_bytes):
        yield Piece(number, source.path, start, min(start + piece_bytes, source.size))


def _texts(number: int, source: Source, piece_bytes: int, replace: bool) -> Iterator[Piece]:
    lines: list[str] = []
    held = offset = 0
    for line in read_lines(source.path, errors="replace" if replace else "strict"):
        lines.append(line)
        held += len(line) + 1
        if held >= piece_bytes:
            yield Piece(number, source.path, offset, offset + held, "\n".join(lines))
            lines, offset, held = [], offset + held, 0
    if lines:
        yield Piece(number, source.path, offset, offset + held, "\n".join(lines))


def _read_range(piece: Piece) -> bytes:
    """The lines whose first byte lies in the range, with the rest of the last one."""
    try:
        with open(piece.path, "rb") as file:
            if piece.start:
                file.seek(piece.start - 1)
                _rest_of_line(file.readline(MAX_LINE_BYTES + 1), piece)
            begin = file.tell()
            if begin >= piece.end:
                return b""
            data = file.read(piece.end - begin)
            if not data.endswith(b"\n"):
                data += _rest_of_line(file.readline(MAX_LINE_BYTES + 1), piece)
    except OSError as error:
        raise DataError(f"{piece.path}: cannot be read ({error.strerror}).") from error
    if begin + len(data) < piece.end:
        raise DataError(f"{piece.path}: became shorter while it was read.", "Prepare again when it is complete.")
    data = data.removesuffix(b"\n")
    return data.removeprefix(b"\xef\xbb\xbf") if piece.start == 0 else data


def _rest_of_line(line: bytes, piece: Piece) -> bytes:
    if len(line) > MAX_LINE_BYTES:
        raise DataError(
            f"{piece.path}: a line near byte {piece.start:,} is longer than {MAX_LINE_BYTES:,} bytes.",
            "Is this text, one sentence or paragraph a line?",
        )
    return line
