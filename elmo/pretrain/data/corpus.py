"""Reads text files as a stream of tokenised sentences, or as chunks for worker processes.

This is the first step of the pretraining data path. By default a line is one sentence and spaces separate its tokens,
as in the reference implementation. With the name of a tokenizer, a line is a paragraph of raw text, which is split into
sentences and tokens here. Blank lines are skipped. For parallel processing a corpus is a sequence of `Chunk`s of
complete lines; the chunk boundaries depend on the files alone, never on the number of workers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.sources import Source, find_sources
from elmo.text.encodings import UTF8, UTF8_BOM, check_encoding, has_newline_bytes
from elmo.text.lines import MAX_LINE_BYTES, read_lines
from elmo.text.sentences import sentence_rules, split_lines
from elmo.text.tokenize import default_pattern, tokenizer
from elmo.text.unicode_pattern import unicode_pattern
from elmo.text.vocab import BOS, EOS, UNK

log = logging.getLogger(__name__)

CHUNK_BYTES = 8 << 20
_ESCAPED = {word: word.replace("<", "&lt;").replace(">", "&gt;") for word in (BOS, EOS, UNK)}


class Chunk(NamedTuple):
    """Complete lines of one source.

    They are the lines that begin in bytes start..end of a splittable file, or `text` where it is not None.
    """

    source: int  # index in the list of sources
    path: str
    start: int
    end: int
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options for how text is read as tokenised sentences."""

    tokenize: str | None = None  # None: one tokenised sentence per line; or default, unicode, spacy:LANG ...
    specials: str = "refuse"  # <S>, </S>, <UNK> in the text: refuse; escape; keep (<UNK> alone, as an unknown word)
    errors: str = "strict"  # invalid bytes, damaged or empty files: strict (stop); replace (bytes); skip (the file)
    encoding: str = UTF8  # any text encoding of Python

    def __post_init__(self) -> None:
        for name, choices in (("specials", ("refuse", "escape", "keep")), ("errors", ("strict", "replace", "skip"))):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} is {getattr(self, name)!r}.", f"Expected one of {', '.join(choices)}.")
        object.__setattr__(self, "encoding", check_encoding(self.encoding))
        if self.tokenize is not None:
            tokenizer(self.tokenize)  # an unknown name is an error now, before any text is read


def read_sentences(
    patterns: Iterable[str | Path], reading: Reading | None = None, *, warn: bool = True
) -> Iterator[list[str]]:
    """The tokens of every sentence of all files, one sentence at a time, in bounded memory.

    A special token that `reading.specials` does not allow is a DataError that names file and line.
    warn: whether a warning counts the lines of each file in which invalid bytes were replaced.
    """
    reading = reading or Reading()
    split = sentence_splitter(reading)
    refused = _refused_tokens(reading)
    for source in find_sources(patterns):
        try:
            for line_number, line in enumerate(_read_source(source, reading, warn=warn), start=1):
                for tokens in split(line):
                    if special := next((token for token in tokens if token in refused), None):
                        raise _special_token_error(source.path, line_number, special)
                    yield tokens
        except DataError as error:
            if reading.errors != "skip":
                raise
            log.warning("%s: the rest of the file is skipped: %s", source.path, error.message)


def sentence_splitter(reading: Reading) -> Callable[[str], Iterator[list[str]]]:
    """A function from text (one or more lines) to its non-empty tokenised sentences.

    It escapes special tokens if `reading.specials` is "escape".
    """
    split = _split_tokenised if reading.tokenize is None else _raw_text_splitter(reading.tokenize)
    if reading.specials != "escape":
        return split

    def split_and_escape(text: str) -> Iterator[list[str]]:
        for tokens in split(text):
            yield [_ESCAPED.get(token, token) for token in tokens]

    return split_and_escape


def chunk_jobs(
    sources: Sequence[Source],
    chunk_bytes: int = CHUNK_BYTES,
    *,
    reading: Reading | None = None,
    on_error: Callable[[int, DataError], None] | None = None,
) -> Iterator[list[Chunk]]:
    """The whole corpus as jobs for workers: lists of chunks of about chunk_bytes bytes; small files share a job.

    A splittable file is divided into byte ranges, which the workers read; other files are decompressed here.
    `on_error` receives the source's index and the error if a source cannot be decoded here, and the rest of that source
    is skipped; without `on_error` the error is raised.
    """
    reading = reading or Reading()
    job: list[Chunk] = []
    job_bytes = 0
    for index, source in enumerate(sources):
        chunks = (
            _byte_range_chunks(index, source, chunk_bytes)
            if is_splittable(source, reading)
            else _text_chunks(index, source, chunk_bytes, reading)
        )
        try:
            for chunk in chunks:
                job.append(chunk)
                job_bytes += chunk.end - chunk.start
                if job_bytes >= chunk_bytes:
                    yield job
                    job, job_bytes = [], 0
        except DataError as error:
            if on_error is None:
                raise
            on_error(index, error)
    if job:
        yield job


def is_splittable(source: Source, reading: Reading) -> bool:
    """Whether workers can read byte ranges of the file; not if it is compressed, a stream, or for example in UTF-16."""
    return source.splittable and has_newline_bytes(reading.encoding)


def read_chunk(chunk: Chunk, reading: Reading | None = None) -> str:
    """The text of a chunk, lines separated by newlines; the error for invalid bytes names file, line and byte."""
    if chunk.text is not None:
        return chunk.text
    reading = reading or Reading()
    data = _read_byte_range(chunk)
    if chunk.start == 0 and data.startswith(UTF8_BOM):
        if reading.encoding != UTF8:
            next(read_lines(chunk.path, encoding=reading.encoding))  # raises the error of this contradiction
        data = data.removeprefix(UTF8_BOM)
    try:
        return data.decode(reading.encoding)
    except UnicodeDecodeError as error:
        if reading.errors == "replace":
            return data.decode(reading.encoding, errors="replace")
        for _ in read_lines(chunk.path, encoding=reading.encoding):  # slow, but its error names the line and the byte
            pass
        raise DataError(f"{chunk.path}: changed while it was read.") from error


def find_special_token(chunk: Chunk, reading: Reading, words: Iterable[str]) -> DataError | None:
    """The error for the first refused special token of the chunk's file; None if `words` contains no such token."""
    if not (refused := _refused_tokens(reading).intersection(words)):
        return None
    split = sentence_splitter(reading)
    if os.path.isfile(chunk.path):
        lines = read_lines(chunk.path, encoding=reading.encoding, errors="replace")
        for line_number, line in enumerate(lines, start=1):
            for tokens in split(line):
                if special := next((token for token in tokens if token in refused), None):
                    return _special_token_error(chunk.path, line_number, special)
    return _special_token_error(chunk.path, None, min(refused))


def _special_token_error(path: str, line_number: int | None, special: str) -> DataError:
    location = path if line_number is None else f"{path}:{line_number}"
    return DataError(
        f"{location}: the word {special} means a sentence boundary or an unknown word to the model.",
        "Sentence boundaries are added automatically: remove the word from the text, or choose specials=escape to read "
        "it as ordinary text" + (" (keep: as an unknown word)." if special == UNK else "."),
    )


def _refused_tokens(reading: Reading) -> frozenset[str]:
    return frozenset({"refuse": (BOS, EOS, UNK), "keep": (BOS, EOS), "escape": ()}[reading.specials])


def _split_tokenised(text: str) -> Iterator[list[str]]:
    return filter(None, map(str.split, text.split("\n")))


def _raw_text_splitter(name: str) -> Callable[[str], Iterator[list[str]]]:
    # The pattern alone is twice as fast as the tokenizer, which also computes offsets.
    patterns = {"default": default_pattern, "unicode": unicode_pattern}
    find_tokens = patterns[name]().findall if name in patterns else None
    tokenize, rules = tokenizer(name), sentence_rules(name)

    def split(text: str) -> Iterator[list[str]]:
        for sentence in split_lines(text.split("\n"), rules):
            tokens = find_tokens(sentence) if find_tokens else [token.text for token in tokenize(sentence)]
            if tokens:
                yield tokens

    return split


def _byte_range_chunks(index: int, source: Source, chunk_bytes: int) -> Iterator[Chunk]:
    for start in range(0, source.size, chunk_bytes):
        yield Chunk(index, source.path, start, min(start + chunk_bytes, source.size))


def _read_source(source: Source, reading: Reading, *, warn: bool = True) -> Iterator[str]:
    errors: Literal["strict", "replace"] = "replace" if reading.errors == "replace" else "strict"
    return read_lines(source.path, encoding=reading.encoding, errors=errors, warn=warn)


def _text_chunks(index: int, source: Source, chunk_bytes: int, reading: Reading) -> Iterator[Chunk]:
    lines: list[str] = []
    size = offset = 0
    for line in _read_source(source, reading):
        lines.append(line)
        size += len(line) + 1
        if size >= chunk_bytes:
            yield Chunk(index, source.path, offset, offset + size, "\n".join(lines))
            lines, offset, size = [], offset + size, 0
    if lines:
        yield Chunk(index, source.path, offset, offset + size, "\n".join(lines))


def _read_byte_range(chunk: Chunk) -> bytes:
    """The lines whose first byte is in the chunk's range; the last line is read to its end."""
    try:
        with open(chunk.path, "rb") as file:
            if chunk.start:
                file.seek(chunk.start - 1)
                _check_line_length(file.readline(MAX_LINE_BYTES + 1), chunk)
            begin = file.tell()
            if begin >= chunk.end:
                return b""
            data = file.read(chunk.end - begin)
            if not data.endswith(b"\n"):
                data += _check_line_length(file.readline(MAX_LINE_BYTES + 1), chunk)
    except OSError as error:
        raise DataError(f"{chunk.path}: cannot be read ({error.strerror}).") from error
    if begin + len(data) < chunk.end:
        raise DataError(f"{chunk.path}: became shorter while it was read.", "Prepare again when it is complete.")
    return data.removesuffix(b"\n")


def _check_line_length(line: bytes, chunk: Chunk) -> bytes:
    if len(line) > MAX_LINE_BYTES:
        raise DataError(
            f"{chunk.path}: a line near byte {chunk.start:,} is longer than {MAX_LINE_BYTES:,} bytes.",
            "Is this text with one sentence or paragraph per line?",
        )
    return line
