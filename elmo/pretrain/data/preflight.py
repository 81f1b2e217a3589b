"""Checks a corpus before it is prepared: text that cannot be read, and text that would make a bad model.

`preflight` reads the text as `prepare` does, all of it or an evenly spaced sample, and returns a `CorpusReport`. Its
errors are what `prepare` refuses; its warnings are problems that `prepare` accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.pretrain.data.corpus import CHUNK_BYTES, Chunk, Reading, chunk_jobs, is_splittable
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.sources import Source, find_sources
from elmo.pretrain.data.text_files import find_text, missing_heldout
from elmo.pretrain.data.tokenized_job import ChunkStats, tokenize_job
from elmo.pretrain.data.vocabulary import MIN_ORDER_SCORE, WordCounts, choose_words, order_score, read_vocabulary
from elmo.text.inputs import GLUED_COMMA, is_decomposed
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary

SAMPLE_BYTES = 32 << 20  # of text are checked before it is prepared
RAW_TEXT = "use --tokenizer default (English) or unicode (any language)"
MAX_TRUNCATED_SHARE = 0.001  # of the words may be longer than the suggested max_chars
MAX_MEAN_LENGTH = 500  # tokens per sentence; with more, the lines are probably not sentences


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """Statistics and problems of a corpus. Shares are of tokens, from 0 to 1; counts are of the text that was read."""

    num_files: int
    num_bytes: int
    sampled: bool  # only a part was read
    num_lines: int
    num_blank: int
    num_sentences: int
    num_tokens: int
    num_types: int  # word types: distinct words
    longest_line: tuple[str, int]  # file, characters
    cut_share: float  # words longer than max_chars - 2 bytes, which are truncated
    suggested_max_chars: int  # so that at most one word in a thousand is truncated
    bytes_per_word: float
    upper_share: float | None  # words with a capital letter, of those with letters that have case; None: there are none
    glued_share: float  # words that end in a comma or similar; in text without a tokenizer, also in a full stop
    decomposed_share: float  # words that are shorter in Unicode's form NFC: their accents are separate characters
    coverage: float  # tokens in the vocabulary: the given one, or the one that these options would build
    vocab_size: int
    order_score: float | None  # of a given vocabulary; see vocabulary.order_score
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as a dict for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The report as lines of text."""
        if not self.num_lines:  # nothing could be read
            yield from (f"error: {error}" for error in self.errors)
            return
        sample = " (a sample)" if self.sampled else ""
        yield f"files        {self.num_files:,}, {self.num_bytes / 1e6:,.1f} MB read{sample}"
        yield f"lines        {self.num_lines:,}, {self.num_blank:,} of them blank; the longest has " + (
            f"{self.longest_line[1]:,} characters ({self.longest_line[0]})"
        )
        yield f"sentences    {self.num_sentences:,}"
        yield f"words        {self.num_tokens:,}, {self.num_types:,} different, {self.bytes_per_word:.1f} bytes each"
        yield f"cut words    {self.cut_share:.3%}; --max-chars {self.suggested_max_chars} would be enough"
        yield f"vocabulary   {self.vocab_size:,} words cover {self.coverage:.2%} of the text"
        yield from (f"warning: {warning}" for warning in self.warnings)
        yield from (f"error: {error}" for error in self.errors)


def preflight_warnings(config: PrepareConfig, num_workers: int | None = None, *, needs_order: bool = True) -> list[str]:
    """Warnings about held-out text that is missing, and about a sample of the text to be prepared.

    Standard input is not sampled, because it can be read only once.
    Training and held-out files that do not fit together are an error (see `find_text`).
    `needs_order`: whether a given vocabulary must be sorted by frequency, as the sampled softmax requires.
    """
    find_text(config)
    if "-" in config.training_files:
        return missing_heldout(config)
    report = preflight(
        config.training_files,
        config.reading,
        vocab=read_vocabulary(config.vocab_path) if config.vocab_path else None,
        max_vocab=config.max_vocab,
        min_count=config.min_count,
        max_chars=config.max_chars,
        max_bytes=SAMPLE_BYTES,
        num_workers=num_workers,
    )
    of_text = [warning for warning in report.warnings if needs_order or warning != _unsorted(report.order_score)]
    return missing_heldout(config) + of_text


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
) -> CorpusReport:
    """Reads the corpus, or about max_bytes of it in evenly spaced chunks, and reports statistics and problems.

    The sample of a compressed file is its beginning.
    """
    reading = reading or Reading()
    sources = find_sources(files)
    counts = WordCounts(vocab.words if vocab else (BOS, EOS, UNK))
    errors: dict[int, str] = {}  # the first error of each source

    def on_error(index: int, error: DataError) -> None:
        errors.setdefault(index, f"{error.message} {error.hint}".rstrip())

    jobs = chunk_jobs(sources, reading=reading, on_error=on_error)
    if max_bytes is not None:
        jobs = _sample_jobs(sources, reading, max_bytes, on_error)
    all_stats: list[ChunkStats] = []
    for job in map_in_order(partial(tokenize_job, reading=reading), jobs, num_workers):
        counts.add(job.words, np.bincount(job.ids, minlength=len(job.words)))
        all_stats += job.stats
    for stats in all_stats:
        if stats.error:
            on_error(stats.source, stats.error)
    with_sentences = {stats.source for stats in all_stats if stats.num_sentences}
    # an empty file has no chunk
    checked = {stats.source for stats in all_stats} | {i for i, source in enumerate(sources) if not source.size}
    for index in sorted(checked - with_sentences - set(errors)):
        errors[index] = f"{sources[index].path} contains no sentence."
    return _report(sources, all_stats, counts, errors, vocab, max_vocab, min_count, max_chars, max_bytes, reading)


def _sample_jobs(
    sources: Sequence[Source], reading: Reading, max_bytes: int, on_error: Callable[[int, DataError], None]
) -> Iterator[list[Chunk]]:
    """Jobs of evenly spaced chunks of each file, in proportion to its size."""
    share = min(1.0, max_bytes / max(1, sum(source.size for source in sources)))
    chunk_bytes = max(1 << 16, min(CHUNK_BYTES, max_bytes // 32))
    for index, source in enumerate(sources):
        num_chunks = max(1, round(share * source.size / chunk_bytes))
        is_split = is_splittable(source, reading)
        step = max(1, -(-source.size // chunk_bytes) // num_chunks) if is_split else 1
        try:
            for position, job in enumerate(chunk_jobs([source], chunk_bytes, reading=reading)):
                if position % step == 0:
                    yield [chunk._replace(source=index) for chunk in job]
                if not is_split and position + 1 >= num_chunks:
                    break
        except DataError as error:
            on_error(index, error)


def _report(
    sources: Sequence[Source],
    all_stats: Sequence[ChunkStats],
    counts: WordCounts,
    errors: dict[int, str],
    vocab: Vocabulary | None,
    max_vocab: int | None,
    min_count: int,
    max_chars: int,
    max_bytes: int | None,
    reading: Reading,
) -> CorpusReport:
    words, _, train, _ = counts.table()
    sizes = np.fromiter((len(word.encode()) for word in words), dtype=np.int64, count=len(words))  # bytes
    num_tokens = int(train.sum())
    divisor = max(num_tokens, 1)
    vocab_words = vocab.words if vocab else choose_words(words, train, max_size=max_vocab, min_count=min_count)
    in_vocab = set(vocab_words) - {UNK}
    coverage = sum(int(n) for word, n in zip(words, train, strict=True) if word in in_vocab) / divisor
    score = order_score(vocab, np.array([counts.count(word) for word in vocab.words])) if vocab else None
    longest = max(all_stats, key=lambda stats: stats.longest_line, default=None)
    num_bytes = sum(stats.num_bytes for stats in all_stats)
    glued = _GLUED if reading.tokenize is None else GLUED_COMMA  # tokenizers leave the stop of abbreviations
    report = CorpusReport(
        num_files=len(sources),
        num_bytes=num_bytes,
        sampled=max_bytes is not None and num_bytes < sum(source.size for source in sources),
        num_lines=sum(stats.num_lines for stats in all_stats),
        num_blank=sum(stats.num_blank for stats in all_stats),
        num_sentences=sum(stats.num_sentences for stats in all_stats),
        num_tokens=num_tokens,
        num_types=int((train > 0).sum()),
        longest_line=(sources[longest.source].path, longest.longest_line) if longest else ("", 0),
        cut_share=float(train[sizes > max_chars - 2].sum() / divisor),
        suggested_max_chars=_suggest_max_chars(sizes, train),
        bytes_per_word=float((sizes * train).sum() / divisor),
        upper_share=_token_share(words, train, lambda word: word != word.lower(), among=_has_case),
        glued_share=_token_share(words, train, lambda word: glued.search(word) is not None) or 0.0,
        decomposed_share=_token_share(words, train, is_decomposed) or 0.0,
        coverage=coverage,
        vocab_size=len(vocab_words),
        order_score=score,
        errors=(),
        warnings=(),
    )
    error_texts: tuple[str, ...] = tuple(errors[index] for index in sorted(errors))
    warnings = tuple(_warnings(report, all_stats, max_chars, reading, min_count=None if vocab else min_count))
    if reading.errors == "skip":
        warnings += tuple(f"skipped: {error}" for error in error_texts)
        error_texts = ()
    if not report.num_sentences:
        error_texts += ("The text contains no sentence.",)
    return replace(report, errors=error_texts, warnings=warnings)


def _warnings(
    report: CorpusReport, all_stats: Sequence[ChunkStats], max_chars: int, reading: Reading, min_count: int | None
) -> Iterator[str]:
    """`min_count`: None if the vocabulary was given."""
    advice = RAW_TEXT if reading.tokenize is None else "try another tokenizer"
    if report.cut_share > MAX_TRUNCATED_SHARE:
        yield (
            f"{report.cut_share:.1%} of the words are longer than {max_chars - 2} bytes and are cut there: "
            f"a model that is trained with --max-chars {report.suggested_max_chars} reads them whole."
        )
    if report.bytes_per_word > 30 and report.num_tokens:
        yield "The words are very long: split text of a script without spaces into words first."
    if report.upper_share is not None and report.upper_share < 0.001 and report.num_tokens >= 50:
        yield "Almost no word has a capital letter: a model of lower-cased text works badly on cased text."
    if report.glued_share > 0.02:
        yield f"{report.glued_share:.1%} of the words end in a comma or stop: the text looks untokenised; {advice}."
    if (num_markup := sum(stats.num_markup for stats in all_stats)) > 0.2 * max(1, report.num_lines - report.num_blank):
        lines = f"{num_markup:,} of {report.num_lines:,} lines"
        yield f"{lines} begin as in HTML, XML or JSON: convert them to plain text."
    num_wrapped = sum(stats.num_wrapped for stats in all_stats)
    if reading.tokenize is not None and num_wrapped > 0.5 * max(1, report.num_lines - report.num_blank):
        yield "Most lines end in the middle of a sentence: put each paragraph on one line."
    if report.num_tokens > MAX_MEAN_LENGTH * max(1, report.num_sentences):
        expected = "one sentence per line is expected; for raw text " if reading.tokenize is None else ""
        yield f"Sentences have hundreds of words: {expected}{advice}."
    if num_replaced := sum(stats.num_replaced for stats in all_stats):
        yield f"{num_replaced:,} characters are U+FFFD, which marks text that was decoded wrongly."
    if report.num_blank > report.num_lines / 2:
        yield f"{report.num_blank:,} of {report.num_lines:,} lines are blank; they are skipped."
    if report.num_tokens and report.coverage < 0.9 and not report.sampled:
        rarer = f" Words that occur fewer than {min_count} times are left out: data.min_count." if min_count else ""
        yield (
            f"The vocabulary covers only {report.coverage:.1%} of the text; the softmax reads the rest as <UNK>.{rarer}"
        )
    if unsorted := _unsorted(report.order_score):
        yield unsorted
    if report.decomposed_share > 0.001:
        yield (
            f"{report.decomposed_share:.1%} of the words have accents as separate characters (Unicode form NFD), and "
            "differ from the same words in form NFC: uconv -x NFC or Python's unicodedata.normalize joins them."
        )


def _unsorted(score: float | None) -> str:
    """A warning about the order of a vocabulary; empty if it is sorted, or if none was given."""
    if score is None or score >= MIN_ORDER_SCORE:
        return ""
    return (
        f"The vocabulary is not sorted by falling frequency (order score {score:.2f}); "
        "the sampled softmax will refuse it."
    )


_GLUED = re.compile(r"[^\W\d_]{2}[\"')\]]?[,;:?!.][\"')\]]?\Z")


def _has_case(word: str) -> bool:
    return word.lower() != word.upper()


def _suggest_max_chars(sizes: np.ndarray, counts: np.ndarray) -> int:
    """The smallest max_chars that truncates at most one word in a thousand."""
    per_size = np.bincount(sizes, weights=counts, minlength=1)
    total = per_size.sum()
    longer = total - np.cumsum(per_size)  # words of more bytes than the index
    return max(3, int(np.argmax(longer <= MAX_TRUNCATED_SHARE * total)) + 2)


def _token_share(
    words: Sequence[str],
    counts: np.ndarray,
    condition: Callable[[str], bool],
    among: Callable[[str], bool] | None = None,
) -> float | None:
    """The share of tokens that meet a condition, of the tokens that meet `among`; None if no token meets `among`."""
    selected = [(word, int(n)) for word, n in zip(words, counts, strict=True) if n and (among is None or among(word))]
    total = sum(n for _, n in selected)
    return sum(n for word, n in selected if condition(word)) / total if total else None
