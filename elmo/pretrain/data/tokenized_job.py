"""One job of text into its distinct words and their numbers: what a worker does to a piece of the corpus.

Stands between `corpus` and both `vocabulary` (which adds up the counts) and `shards` (which turns a job's own word
numbers into the corpus' type ids). Nothing is read twice: what was tokenised is kept on disk as numbers.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from elmo.errors import DataError
from elmo.pretrain.data.corpus import Piece, Reading, find_special, read_piece, sentence_cutter


@dataclass(frozen=True, kw_only=True)
class PieceFacts:
    """What one piece held."""

    source: int
    num_bytes: int
    num_lines: int = 0
    num_blank: int = 0
    num_sentences: int = 0
    num_tokens: int = 0
    longest_line: int = 0  # characters
    num_wrapped: int = 0  # long lines that end in the middle of a sentence
    num_replaced: int = 0  # characters that were not UTF-8
    error: DataError | None = None  # nothing of the piece was used


@dataclass(frozen=True)
class Tally:
    """A job's sentences: flat numbers into its own `words`, and where they begin."""

    words: list[str]
    ids: np.ndarray  # (tokens,) int32
    lengths: np.ndarray  # (sentences,) int32
    hashes: np.ndarray  # (sentences,) uint64, equal for equal sentences; empty unless asked for
    facts: list[PieceFacts]  # one a piece, in the order of the sentences


def tally_job(job: Sequence[Piece], reading: Reading, *, hashed: bool = False) -> Tally:
    """Reads and cuts the pieces of a job; a piece that cannot be used gives its error in its facts."""
    cut = sentence_cutter(reading)
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new word gets the next number
    parts: list[np.ndarray] = []
    lengths: list[int] = []
    hashes: list[bytes] = []
    facts: list[PieceFacts] = []
    for piece in job:
        size = piece.end - piece.start
        try:
            text = read_piece(piece, reading.errors)
            sentences = list(cut(text))
        except DataError as error:
            facts.append(PieceFacts(source=piece.source, num_bytes=size, error=error))
            continue
        tokens = [token for sentence in sentences for token in sentence]
        if special := find_special(piece, reading, set(tokens)):
            facts.append(PieceFacts(source=piece.source, num_bytes=size, error=special))
            continue
        parts.append(np.fromiter(map(numbers.__getitem__, tokens), dtype=np.int32, count=len(tokens)))
        lengths += map(len, sentences)
        if hashed:
            hashes += [blake2b(" ".join(sentence).encode(), digest_size=8).digest() for sentence in sentences]
        facts.append(_facts(piece, text, len(sentences), len(tokens)))
    return Tally(
        words=list(numbers),
        ids=np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32),
        lengths=np.array(lengths, dtype=np.int32),
        hashes=np.frombuffer(b"".join(hashes), dtype="<u8"),
        facts=facts,
    )


def save_tally(tally: Tally, path: Path) -> None:
    """Keeps a tally (without its facts) on disk until the whole corpus has been read."""
    with open(path, "wb") as file:
        for array in (tally.hashes, tally.lengths, tally.ids):
            np.save(file, array)
        file.write(zlib.compress("\n".join(tally.words).encode(), 1))


def load_tally(path: Path, *, with_words: bool = True) -> Tally:
    """The inverse of `save_tally`, without the facts."""
    with open(path, "rb") as file:
        hashes, lengths, ids = np.load(file), np.load(file), np.load(file)
        text = zlib.decompress(file.read()).decode() if with_words else ""
    return Tally(text.split("\n") if text else [], ids, lengths, hashes, [])


def load_hashes(path: Path) -> np.ndarray:
    """The sentences' hashes of a saved tally alone, (sentences,) uint64."""
    with open(path, "rb") as file:
        return np.asarray(np.load(file))


def _facts(piece: Piece, text: str, num_sentences: int, num_tokens: int) -> PieceFacts:
    lines = text.split("\n") if text or piece.text is not None else []
    return PieceFacts(
        source=piece.source,
        num_bytes=piece.end - piece.start,
        num_lines=len(lines),
        num_blank=sum(not line or line.isspace() for line in lines),
        num_sentences=num_sentences,
        num_tokens=num_tokens,
        longest_line=max(map(len, lines), default=0),
        num_wrapped=sum(len(line) >= 40 and line.rstrip()[-1:].isalnum() for line in lines),
        num_replaced=text.count("\ufffd"),
    )
