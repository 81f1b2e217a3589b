"""Counts words and chooses the vocabulary, the words that the language model can predict.

`WordCounts` adds up the counts of all workers. `build_vocabulary` makes the list that the reference implementation
expects: <S>, </S>, <UNK>, then words by falling count, the same on every machine. `order_score` measures how well the
order of an existing list fits the sampled softmax, which draws its negatives by rank.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from elmo.errors import ConfigError, DataError
from elmo.pretrain.data.corpus import Reading, chunk_jobs
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.sources import find_sources
from elmo.pretrain.data.tokenized_job import tokenize_job
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary

log = logging.getLogger(__name__)

MAX_TYPES = 20_000_000  # word types (distinct words); this many need about 2.5 GB of memory while counting
MIN_ORDER_SCORE = 0.5  # the sampled softmax refuses a lower order_score; a sorted list has 1, a shuffled one 0


class WordCounts:
    """The count of each word in training and held-out text, with an id per word that never changes.

    It holds at most about `max_types` word types (distinct words). Beyond that it evicts the rarest words with a
    warning; an evicted word that occurs again gets a new id and its count restarts at zero. `reserved` words get the
    first ids, in their order, and are never evicted. With `weighted`, words are sorted by weighted counts, in which a
    word of a language that training repeats counts more than one of a language that it reads in part.
    """

    def __init__(self, reserved: Sequence[str] = (), *, max_types: int = MAX_TYPES, weighted: bool = False) -> None:
        if max_types < len(reserved) + 1:
            raise ConfigError(f"max_types is {max_types:,}; expected more than the {len(reserved):,} reserved words.")
        self._next_id = count(len(reserved))
        self._ids: defaultdict[str, int] = defaultdict(self._next_id.__next__, zip(reserved, count()))
        self._num_reserved = len(reserved)
        self._max_types = max_types
        self._counts = np.zeros((2, max(1024, 2 * len(reserved))), dtype=np.int64)  # (train and held-out, word ids)
        self._weighted = np.zeros(self._counts.shape[1]) if weighted else None  # (word ids,), of the training text
        self._num_ids = len(reserved)
        self.num_evicted = 0  # words
        self.num_evicted_tokens = 0

    def __len__(self) -> int:
        return len(self._ids)

    def add(
        self,
        words: Sequence[str],
        train: np.ndarray,
        heldout: np.ndarray | None = None,
        weighted: np.ndarray | None = None,
    ) -> np.ndarray:
        """Adds the counts of distinct words and returns the words' ids, (len(words),) int32.

        `weighted` are the weighted counts in training text; None: they are the counts.
        """
        ids = np.fromiter(map(self._ids.__getitem__, words), dtype=np.int32, count=len(words))
        self._num_ids = max(self._num_ids, int(ids.max(initial=-1)) + 1)
        if self._num_ids > self._counts.shape[1]:
            grown = np.zeros((2, 2 * self._num_ids), dtype=np.int64)
            grown[:, : self._counts.shape[1]] = self._counts
            self._counts = grown
            if self._weighted is not None:
                self._weighted = np.concatenate([self._weighted, np.zeros(grown.shape[1] - len(self._weighted))])
        self._counts[0, ids] += train
        if heldout is not None:
            self._counts[1, ids] += heldout
        if self._weighted is not None:
            self._weighted[ids] += train if weighted is None else weighted
        if len(self._ids) > self._max_types:
            self._evict()
        return ids

    def table(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        """All words that were not evicted, their ids (int32), and their counts in training and in held-out text.

        Sorted by falling count in the training text, weighted if `weighted` was set; words of equal count are sorted by
        code points.
        """
        words, ids = self._words_and_ids()
        by_word = np.array(sorted(range(len(words)), key=words.__getitem__), dtype=np.int64)
        order = by_word[np.argsort(-self.sorting_counts(ids[by_word]), kind="stable")]
        ids = ids[order]
        return [words[i] for i in order], ids, self._counts[0, ids], self._counts[1, ids]

    def sorting_counts(self, ids: np.ndarray) -> np.ndarray:
        """The counts of words in training text by which they are sorted, from their ids."""
        counts: np.ndarray = self._counts[0] if self._weighted is None else self._weighted
        return np.asarray(counts[ids])

    def _words_and_ids(self) -> tuple[list[str], np.ndarray]:
        words = list(self._ids)
        return words, np.fromiter(self._ids.values(), dtype=np.int32, count=len(words))

    def count(self, word: str) -> int:
        """The count of a word in the training text; 0 for a word that was never added or was evicted."""
        word_id = self._ids.get(word)
        return 0 if word_id is None else int(self._counts[0, word_id])

    @property
    def num_ids(self) -> int:
        """One more than the highest id in use, ids of evicted words included."""
        return self._num_ids

    def _evict(self) -> None:
        words, ids = self._words_and_ids()
        total = self._counts[:, ids].sum(axis=0)
        total[ids < self._num_reserved] = np.iinfo(np.int64).max
        max_evicted_count = np.sort(total)[len(total) // 2]  # evicts the rarer half, and all words of the same count
        evicted = total <= min(max_evicted_count, np.iinfo(np.int64).max - 1)
        self.num_evicted += int(evicted.sum())
        self.num_evicted_tokens += int(total[evicted].sum())
        log.warning(
            "More than %d different words: %d of them, seen at most %d times, are discarded and will be read as <UNK>.",
            self._max_types,
            int(evicted.sum()),
            int(max_evicted_count),
        )
        remaining = ((word, int(i)) for word, i, is_evicted in zip(words, ids, evicted, strict=True) if not is_evicted)
        self._ids = defaultdict(self._next_id.__next__, remaining)


def count_words(
    files: Iterable[str | Path],
    reading: Reading | None = None,
    *,
    num_workers: int | None = None,
    max_types: int = MAX_TYPES,
) -> WordCounts:
    """The word counts of a corpus, counted in parallel."""
    reading = reading or Reading()
    counts = WordCounts((BOS, EOS, UNK), max_types=max_types)
    chunks = chunk_jobs(find_sources(files), reading=reading)
    for job in map_in_order(partial(tokenize_job, reading=reading), chunks, num_workers):
        if error := next((stats.error for stats in job.stats if stats.error), None):
            raise error
        counts.add(job.words, np.bincount(job.ids, minlength=len(job.words)))
    return counts


def build_vocabulary(counts: WordCounts, *, max_size: int | None = None, min_count: int = 1) -> Vocabulary:
    """<S>, </S>, <UNK>, then the words with a count of min_count or more, by falling count and then by code points.

    At most max_size lines, the first three included. Only counts in training text are used.
    """
    words, _, train, _ = counts.table()
    return Vocabulary(choose_words(words, train, max_size=max_size, min_count=min_count))


def choose_words(
    words: Sequence[str], counts: np.ndarray, *, max_size: int | None = None, min_count: int = 1
) -> list[str]:
    """The lines of a vocabulary, from words in falling order; see `build_vocabulary`."""
    if max_size is not None and max_size < 4:
        raise ConfigError(f"A vocabulary of {max_size} lines is too small.", "Three are <S>, </S> and <UNK>.")
    is_frequent = (counts >= max(1, min_count)).tolist()
    frequent = (word for word, keep in zip(words, is_frequent, strict=True) if keep)
    lines = [BOS, EOS, UNK, *(word for word in frequent if word not in (BOS, EOS, UNK))]
    return lines[:max_size]


def read_vocabulary(path: str | Path) -> Vocabulary:
    """Reads a vocabulary file, one word per line, with LF or CRLF; the error for a word with a space names its line."""
    vocab = Vocabulary.from_file(path)
    if len(vocab) < 4:
        raise DataError(f"{path}: only {len(vocab)} lines.", "A vocabulary needs <S>, </S>, <UNK> and some words.")
    if line_index := next((i for i, word in enumerate(vocab.words) if len(word.split()) > 1), None):
        raise DataError(
            f"{path}:{line_index + 1}: {vocab.words[line_index][:60]!r} contains a space.",
            "Expected one word per line, without counts or other columns.",
        )
    return vocab


def order_score(vocab: Vocabulary, counts: np.ndarray) -> float:
    """How well the order of a vocabulary agrees with word counts (V,): 1 sorted, about 0 random, below 0 reversed.

    The measure is the mean surprisal of the corpus' words under the sampler's log-uniform distribution over ranks,
    scaled so that a random order has 0 and the order by falling count has 1. A vocabulary from another kind of text in
    the same language has 0.8 or more. The three special words are excluded.
    """
    specials = [vocab.bos, vocab.eos, vocab.unk]
    word_counts = np.delete(counts.astype(np.float64), specials)
    ranks = np.arange(len(vocab), dtype=np.float64)
    surprisal = -np.log(np.log((ranks + 2) / (ranks + 1)) / np.log(len(vocab) + 1))
    surprisal = np.delete(surprisal, specials)
    total = word_counts.sum()
    if total == 0:
        return 1.0
    frequency = word_counts / total
    actual, best, random = frequency @ surprisal, np.sort(frequency)[::-1] @ np.sort(surprisal), surprisal.mean()
    return 1.0 if random - best < 1e-6 else float((random - actual) / (random - best))


def require_sorted(score: float, source: str) -> None:
    """Raises ConfigError for a low order score, because the sampled softmax would learn from the wrong negatives."""
    if score < MIN_ORDER_SCORE:
        raise ConfigError(
            f"{source} is not sorted by falling frequency (order score {score:.2f}; 1 is sorted, 0 random).",
            "The sampled softmax draws negatives by rank: sort the list, let `elmo prepare` build one, or use the full "
            "softmax.",
        )
