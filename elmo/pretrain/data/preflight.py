"""A look at a corpus before hours are spent on it: what cannot be read, and what would be learned badly.

Reads the text the way `shards` will, all of it or an even sample, and gives a `Report`. Errors are what preparing would
refuse; warnings are what it would do and you may not want.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.pretrain.data.corpus import PIECE_BYTES, Piece, Reading, Source, find_sources, pieces
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.prepare import PrepareConfig
from elmo.pretrain.data.tokenized_job import PieceFacts, tally_job
from elmo.pretrain.data.vocabulary import WordCounts, choose_words, order_score, read_vocabulary
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary

LOOK_BYTES = 32 << 20  # of the text are looked at before it is prepared
CUT_ALLOWED = 0.001  # share of words that may be longer than the suggested width
LONG_SENTENCE = 500  # tokens a sentence on average; more is hardly one sentence a line


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a corpus is like. Shares are of tokens, from 0 to 1; numbers count what was looked at."""

    num_files: int
    num_bytes: int
    sampled: bool  # only a part was read
    num_lines: int
    num_blank: int
    num_sentences: int
    num_tokens: int
    num_types: int
    longest_line: tuple[str, int]  # file, characters
    cut_share: float  # words longer than max_chars - 2 bytes, cut there
    suggested_max_chars: int  # so that no more than one in a thousand is cut
    bytes_per_word: float
    upper_share: float | None  # words with a capital, of those that could have one; None: none could
    glued_share: float  # words that end in a comma, stop or the like
    coverage: float  # tokens the vocabulary knows: the one given, or the one these options would build
    vocab_size: int
    order_score: float | None  # of a given vocabulary; see vocabulary.order_score
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The report for a person."""
        part = " (a sample)" if self.sampled else ""
        yield f"files        {self.num_files:,}, {self.num_bytes / 1e6:,.1f} MB read{part}"
        yield f"lines        {self.num_lines:,}, {self.num_blank:,} of them blank; the longest has " + (
            f"{self.longest_line[1]:,} characters ({self.longest_line[0]})"
        )
        yield f"sentences    {self.num_sentences:,}"
        yield f"words        {self.num_tokens:,}, {self.num_types:,} different, {self.bytes_per_word:.1f} bytes each"
        yield f"cut words    {self.cut_share:.3%}; a width of {self.suggested_max_chars} would be enough"
        yield f"vocabulary   {self.vocab_size:,} words know {self.coverage:.2%} of the text"
        yield from (f"warning: {warning}" for warning in self.warnings)
        yield from (f"error: {error}" for error in self.errors)


def first_look(config: PrepareConfig, num_workers: int | None = None) -> list[str]:
    """Warnings after reading some of the text that is to be prepared; none for standard input, which is read once."""
    if "-" in config.files:
        return []
    report = preflight(
        config.files,
        config.reading,
        vocab=read_vocabulary(config.vocab_path) if config.vocab_path else None,
        max_vocab=config.max_vocab,
        min_count=config.min_count,
        max_chars=config.max_chars,
        max_bytes=LOOK_BYTES,
        num_workers=num_workers,
    )
    return list(report.warnings)


def preflight(
    files: Iterable[str | Path],
    reading: Reading | None = None,
    *,
    vocab: Vocabulary | None = None,
    max_vocab: int | None = 100_000,
    min_count: int = 2,
    max_chars: int = 50,
    max_bytes: int | None = None,
    num_workers: int | None = None,
) -> Report:
    """Reads the corpus, or about max_bytes of it spread evenly, and says what it found.

    A compressed file is sampled from its beginning.
    """
    reading = reading or Reading()
    sources = find_sources(files)
    counts = WordCounts(vocab.words if vocab else (BOS, EOS, UNK))
    errors: dict[int, str] = {}  # the first of each source

    def on_bad(number: int, error: DataError) -> None:
        errors.setdefault(number, error.message)

    jobs = pieces(sources, replace=reading.errors == "replace", on_bad=on_bad)
    if max_bytes is not None:
        jobs = _sampled(sources, reading, max_bytes, on_bad)
    found: list[PieceFacts] = []
    for tally in map_in_order(partial(tally_job, reading=reading), jobs, num_workers):
        counts.add(tally.words, np.bincount(tally.ids, minlength=len(tally.words)))
        found += tally.facts
    for fact in found:
        if fact.error:
            on_bad(fact.source, fact.error)
    alive = {fact.source for fact in found if fact.num_sentences}
    looked = {fact.source for fact in found} | {
        number for number, source in enumerate(sources) if not source.size
    }  # no piece
    for number in sorted(looked - alive - set(errors)):
        errors[number] = f"{sources[number].path} holds no sentence."
    return _report(sources, found, counts, errors, vocab, max_vocab, min_count, max_chars, max_bytes, reading)


def _sampled(sources: Sequence[Source], reading: Reading, max_bytes: int, on_bad: Any) -> Iterator[list[Piece]]:
    """Jobs of evenly spaced pieces of each file, in proportion to its size."""
    share = min(1.0, max_bytes / max(1, sum(source.size for source in sources)))
    size = max(1 << 16, min(PIECE_BYTES, max_bytes // 32))
    for number, source in enumerate(sources):
        wanted = max(1, round(share * source.size / size))
        step = max(1, -(-source.size // size) // wanted) if source.plain else 1
        try:
            runs = pieces([source], size, replace=reading.errors == "replace")
            for place, job in enumerate(runs):
                if place % step == 0:
                    yield [piece._replace(source=number) for piece in job]
                if not source.plain and place + 1 >= wanted:
                    break
        except DataError as error:
            on_bad(number, error)


def _report(
    sources: Sequence[Source],
    found: Sequence[PieceFacts],
    counts: WordCounts,
    errors: dict[int, str],
    vocab: Vocabulary | None,
    max_vocab: int | None,
    min_count: int,
    max_chars: int,
    max_bytes: int | None,
    reading: Reading,
) -> Report:
    words, _, train, _ = counts.table()
    seen = train > 0
    sizes = np.fromiter((len(word.encode()) for word in words), dtype=np.int64, count=len(words))
    tokens = int(train.sum())
    per_token = max(tokens, 1)
    lines = vocab.words if vocab else choose_words(words, train, max_size=max_vocab, min_count=min_count)
    known = set(lines) - {UNK}
    coverage = sum(int(n) for word, n in zip(words, train, strict=True) if word in known) / per_token
    score = order_score(vocab, np.array([counts.count(word) for word in vocab.words])) if vocab else None
    upper = _share(words, train, lambda word: word != word.lower(), among=lambda word: word.lower() != word.upper())
    longest = max(found, key=lambda fact: fact.longest_line, default=None)
    num_bytes = sum(fact.num_bytes for fact in found)
    facts = Report(
        num_files=len(sources),
        num_bytes=num_bytes,
        sampled=max_bytes is not None and num_bytes < sum(source.size for source in sources),
        num_lines=sum(fact.num_lines for fact in found),
        num_blank=sum(fact.num_blank for fact in found),
        num_sentences=sum(fact.num_sentences for fact in found),
        num_tokens=tokens,
        num_types=int(seen.sum()),
        longest_line=(sources[longest.source].path, longest.longest_line) if longest else ("", 0),
        cut_share=float(train[sizes > max_chars - 2].sum() / per_token),
        suggested_max_chars=_width(sizes, train),
        bytes_per_word=float((sizes * train).sum() / per_token),
        upper_share=upper,
        glued_share=_share(words, train, lambda word: _GLUED.search(word) is not None) or 0.0,
        coverage=coverage,
        vocab_size=len(lines),
        order_score=score,
        errors=(),
        warnings=(),
    )
    bad: tuple[str, ...] = tuple(errors[number] for number in sorted(errors))
    warnings = tuple(_warnings(facts, found, max_chars, reading))
    if reading.errors == "skip":
        warnings += tuple(f"left out: {error}" for error in bad)
        bad = ()
    if not facts.num_sentences:
        bad += ("There is not one sentence.",)
    return replace(facts, errors=bad, warnings=warnings)


def _warnings(facts: Report, found: Sequence[PieceFacts], max_chars: int, reading: Reading) -> Iterator[str]:
    if facts.cut_share > CUT_ALLOWED:
        yield (
            f"{facts.cut_share:.1%} of the words are longer than {max_chars - 2} bytes and are cut there: "
            f"use --max-chars {facts.suggested_max_chars}."
        )
    if facts.bytes_per_word > 30 and facts.num_tokens:
        yield "The words are very long: text of a script without spaces must be cut into words first."
    if facts.upper_share is not None and facts.upper_share < 0.001 and facts.num_tokens >= 50:
        yield "No word has a capital letter: lower-cased text makes a model that is lost on cased text."
    if facts.glued_share > 0.02:
        how = "give --tokenize default" if reading.tokenize is None else "try another tokenizer"
        yield f"{facts.glued_share:.1%} of the words end in a comma or stop: the text looks untokenised; {how}."
    wrapped = sum(fact.num_wrapped for fact in found)
    if reading.tokenize is not None and wrapped > 0.5 * max(1, facts.num_lines - facts.num_blank):
        yield "Most lines end in the middle of a sentence: put each paragraph on one line."
    if facts.num_tokens > LONG_SENTENCE * max(1, facts.num_sentences):
        yield "Sentences hold hundreds of words: one sentence a line is expected, or --tokenize default for raw text."
    if replaced := sum(fact.num_replaced for fact in found):
        yield f"{replaced:,} characters are U+FFFD, the mark of text that was decoded wrongly."
    if facts.num_blank > facts.num_lines / 2:
        yield f"{facts.num_blank:,} of {facts.num_lines:,} lines are blank; they are no sentences."
    if facts.num_tokens and facts.coverage < 0.9 and not facts.sampled:
        yield f"The vocabulary knows only {facts.coverage:.1%} of the text; the rest is <UNK> to the softmax."
    if facts.order_score is not None and facts.order_score < 0.5:
        yield (
            f"The vocabulary is not sorted by falling frequency (order score {facts.order_score:.2f}); "
            "the sampled softmax will refuse it."
        )


_GLUED = re.compile(r"[^\W\d_]{2}[\"')\]]?[,;:?!.][\"')\]]?\Z")


def _width(sizes: np.ndarray, counts: np.ndarray) -> int:
    """The narrowest row of characters that cuts at most one word in a thousand."""
    per_size = np.bincount(sizes, weights=counts, minlength=1)
    total = per_size.sum()
    longer = total - np.cumsum(per_size)  # words of more bytes than the index
    return max(3, int(np.argmax(longer <= CUT_ALLOWED * total)) + 2)


def _share(words: Sequence[str], counts: np.ndarray, holds: Any, among: Any = None) -> float | None:
    """Which part of the tokens a condition holds for, of those it is asked of; None: of none."""
    asked = [(word, int(n)) for word, n in zip(words, counts, strict=True) if n and (among is None or among(word))]
    total = sum(n for _, n in asked)
    return sum(n for word, n in asked if holds(word)) / total if total else None
