"""Tokenizes one job of text into ids of its own words, and stores the result on disk.

This is what a worker does with the chunks of `corpus`. `vocabulary` adds up the word counts of all jobs; `splits` and
`shards` turn the word ids of each job into the ids of the word types (distinct words) of the corpus. The text is read
and tokenised only once, because the tokenised jobs are stored as arrays until the whole corpus has been read.
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
from elmo.pretrain.data.corpus import Chunk, Reading, find_special_token, read_chunk, sentence_splitter


@dataclass(frozen=True, kw_only=True)
class ChunkStats:
    """Counts of what one chunk contains."""

    source: int
    num_bytes: int
    num_lines: int = 0
    num_blank: int = 0
    num_sentences: int = 0
    num_tokens: int = 0
    longest_line: int = 0  # characters
    num_markup: int = 0  # lines that begin as in HTML, XML or JSON
    num_wrapped: int = 0  # long lines that end in the middle of a sentence
    num_replaced: int = 0  # U+FFFD characters, which replace invalid bytes
    error: DataError | None = None  # if set, no text of the chunk is used


@dataclass(frozen=True)
class TokenizedJob:
    """The sentences of a job as one flat array of ids into `words`, the job's own distinct words."""

    words: list[str]
    ids: np.ndarray  # (tokens,) int32
    lengths: np.ndarray  # (sentences,) int32, tokens per sentence
    hashes: np.ndarray  # (sentences,) uint64, equal for equal sentences; empty unless `with_hashes`
    stats: list[ChunkStats]  # one per chunk, in the order of the sentences


@dataclass(frozen=True)
class StoredJob:
    """A tokenised job on disk, with the number of sentences that it has from each source, in order."""

    path: Path
    spans: tuple[tuple[int, int], ...]  # (source, sentences)

    def sentence_sources(self) -> np.ndarray:
        """The index of the source of each sentence, (sentences,)."""
        sources, counts = np.array(self.spans, dtype=np.int64).reshape(-1, 2).T
        return np.repeat(sources, counts)


def tokenize_job(job: Sequence[Chunk], reading: Reading, *, with_hashes: bool = False) -> TokenizedJob:
    """Reads and tokenises the chunks of a job; the stats of a chunk that cannot be used hold its error."""
    split = sentence_splitter(reading)
    word_ids: defaultdict[str, int] = defaultdict()
    word_ids.default_factory = word_ids.__len__  # a new word gets the next id
    ids: list[np.ndarray] = []
    lengths: list[int] = []
    hashes: list[bytes] = []
    stats: list[ChunkStats] = []
    for chunk in job:
        num_bytes = chunk.end - chunk.start
        try:
            text = read_chunk(chunk, reading)
            sentences = list(split(text))
        except DataError as error:
            stats.append(ChunkStats(source=chunk.source, num_bytes=num_bytes, error=error))
            continue
        tokens = [token for sentence in sentences for token in sentence]
        if special_error := find_special_token(chunk, reading, set(tokens)):
            stats.append(ChunkStats(source=chunk.source, num_bytes=num_bytes, error=special_error))
            continue
        ids.append(np.fromiter(map(word_ids.__getitem__, tokens), dtype=np.int32, count=len(tokens)))
        lengths += map(len, sentences)
        if with_hashes:
            hashes += [blake2b(" ".join(sentence).encode(), digest_size=8).digest() for sentence in sentences]
        stats.append(_chunk_stats(chunk, text, len(sentences), len(tokens)))
    return TokenizedJob(
        words=list(word_ids),
        ids=np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
        lengths=np.array(lengths, dtype=np.int32),
        hashes=np.frombuffer(b"".join(hashes), dtype="<u8"),
        stats=stats,
    )


def save_job(job: TokenizedJob, path: Path) -> None:
    """Writes a tokenised job, without its stats, to a file."""
    with open(path, "wb") as file:
        for array in (job.hashes, job.lengths, job.ids):
            np.save(file, array)
        file.write(zlib.compress("\n".join(job.words).encode(), 1))


def load_job(path: Path, *, with_words: bool = True) -> TokenizedJob:
    """The inverse of `save_job`; the stats are empty."""
    with open(path, "rb") as file:
        hashes, lengths, ids = np.load(file), np.load(file), np.load(file)
        text = zlib.decompress(file.read()).decode() if with_words else ""
    return TokenizedJob(text.split("\n") if text else [], ids, lengths, hashes, [])


def load_hashes(path: Path) -> np.ndarray:
    """Only the sentence hashes of a saved job, (sentences,) uint64."""
    with open(path, "rb") as file:
        return np.asarray(np.load(file))


def _chunk_stats(chunk: Chunk, text: str, num_sentences: int, num_tokens: int) -> ChunkStats:
    lines = text.split("\n") if text or chunk.text is not None else []
    return ChunkStats(
        source=chunk.source,
        num_bytes=chunk.end - chunk.start,
        num_lines=len(lines),
        num_blank=sum(not line or line.isspace() for line in lines),
        num_sentences=num_sentences,
        num_tokens=num_tokens,
        longest_line=max(map(len, lines), default=0),
        num_markup=sum(line.lstrip()[:1] in ("<", "{") for line in lines if line),
        num_wrapped=sum(len(line) >= 40 and line.rstrip()[-1:].isalnum() for line in lines),
        num_replaced=text.count("\ufffd"),
    )
