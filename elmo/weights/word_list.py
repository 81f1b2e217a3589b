"""Reads and writes a model's words and word counts: one per line, UTF-8, compressed if the file name says so."""

from __future__ import annotations

import io
import itertools
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np

from elmo.errors import WeightsError
from elmo.files import DAMAGE, check_regular, open_bytes
from elmo.model.config import BiLMConfig
from elmo.weights.memory_bound import claim, memory_bound

MAX_WORDS = 10_000_000  # where the model does not say how many there are
MAX_WORD_BYTES = 1 << 16  # of one line
MAX_BYTES = 256 << 20  # of all lines, after decompression
MAX_EXPANSION = 200  # times the size of the file, after decompression
_BYTES_PER_WORD = 256  # on average, at most
_CLAIM_WORDS, _WORD_BYTES = 10_000, 80  # a claim of memory is for so many words; a short word needs so many bytes
_SMALL = 1 << 20  # bytes that are always accepted
_COUNT = re.compile(r"[0-9]{1,18}")  # fits an int64
_SKIPPED_LINE = "!!!MAXTERMID"  # a line in old vocabulary files, which bilm-tf skips


def read_words(path: Path, max_words: int | None = None) -> tuple[str, ...]:
    """The stripped lines of a word list; a blank line is an empty word, because a word's id is its line number.

    More than max_words words, the number of the model's rows, are an error. The memory is bounded by that number and by
    the size of the file, because a small compressed file can unpack to gigabytes.
    """
    check_regular(path, WeightsError)
    limit = MAX_WORDS if max_words is None else min(max_words, MAX_WORDS)
    words: list[str] = []
    try:
        num_bytes = min(MAX_BYTES, _SMALL + _BYTES_PER_WORD * limit, _SMALL + MAX_EXPANSION * path.stat().st_size)
        # BufferedReader, because gzip's own readline is slow
        with memory_bound(path), io.BufferedReader(cast(io.RawIOBase, open_bytes(path))) as file:
            for word in _lines(file, path, num_bytes):
                if word == _SKIPPED_LINE:
                    continue
                if len(words) == limit:
                    hint = "It belongs to another model, or it is damaged."
                    raise WeightsError(f"{path} holds more than {limit:,} words.", hint)
                if len(words) % _CLAIM_WORDS == 0:
                    claim(_CLAIM_WORDS * _WORD_BYTES, path)
                words.append(word)
    except DAMAGE as error:
        raise WeightsError(f"{path}: cannot be read as a word list ({str(error)[:200]}).") from error
    return tuple(words)


def read_model_words(path: Path, config: BiLMConfig) -> tuple[str, ...]:
    """The words of a model's softmax or word table; as many as the table has rows, if the model has one."""
    size = config.head.vocab_size if config.head else config.words.num_words if config.words else None
    words = read_words(path, size)
    if size is not None and len(words) != size:
        raise WeightsError(
            f"{path} holds {len(words):,} words; the model has rows for {size:,}.",
            "It belongs to another model: replace it with the vocabulary of this model's training, or remove it.",
        )
    return words


def read_counts(path: Path, num_words: int) -> np.ndarray:
    """The counts of a model's words, (V,) int64: one whole number per line, in the order of the words."""
    lines = read_words(path, num_words)
    if len(lines) != num_words:
        raise WeightsError(f"{path} holds {len(lines):,} counts; the model has {num_words:,} words.", "It is damaged.")
    wrong = next((number for number, line in enumerate(lines, start=1) if not _COUNT.fullmatch(line)), None)
    if wrong is not None:
        raise WeightsError(f"{path}:{wrong}: {lines[wrong - 1][:40]!r} is not a count.", "It is damaged.")
    return np.array([int(line) for line in lines], dtype=np.int64)


def _lines(file: IO[bytes], path: Path, num_bytes: int) -> Iterator[str]:
    """The stripped lines of at most num_bytes bytes."""
    position = 0
    for number in itertools.count(1):
        line = file.readline(MAX_WORD_BYTES)
        if not line:
            return
        if not line.endswith(b"\n") and len(line) == MAX_WORD_BYTES:
            raise WeightsError(f"{path}:{number}: a word of more than {MAX_WORD_BYTES:,} bytes.", "Is it a word list?")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 (byte {position + error.start})"
            raise WeightsError(f"{path}:{number}: {reason}.", "Word lists are UTF-8.") from error
        position += len(line)
        if position > num_bytes:
            raise WeightsError(f"{path}: more than {num_bytes:,} bytes of words.", "It is damaged, or not a word list.")
        yield text.strip()


def write_words(path: Path, words: Iterable[str]) -> None:
    """Writes one word per line, as `read_words` reads them; compressed if the name ends in .xz."""
    data = "".join(f"{word}\n" for word in words).encode("utf-8")
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
