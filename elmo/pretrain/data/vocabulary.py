"""Counting words and choosing those the language model can predict: most frequent first, the same on every machine.

`WordCounts` adds up what the workers found; `build_vocabulary` cuts it into the list the reference expects (<S>, </S>,
<UNK>, then by falling count); `order_score` tells how well a list made elsewhere fits the sampled softmax, whose
negatives are drawn by rank.
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
from elmo.pretrain.data.corpus import Reading, find_sources, pieces
from elmo.pretrain.data.parallel import map_in_order
from elmo.pretrain.data.tokenized_job import tally_job
from elmo.text.vocab import BOS, EOS, UNK, Vocabulary

log = logging.getLogger(__name__)

MAX_TYPES = 20_000_000  # about 2.5 GB of memory while counting
SORTED_ENOUGH = 0.5  # order_score below this is refused for the sampled softmax; a sorted list has 1, a shuffled one 0


class WordCounts:
    """How often each word occurs, with a number for each word that never changes.

    Holds at most about `max_types` words: beyond that the rarest are forgotten, with a warning, and counted anew when
    they return. Words given at the start keep their place in the order given and are never forgotten.
    """

    def __init__(self, keep: Sequence[str] = (), *, max_types: int = MAX_TYPES) -> None:
        if max_types < len(keep) + 1:
            raise ConfigError(f"max_types is {max_types:,}; {len(keep):,} words are to be kept.")
        self._next = count(len(keep))
        self._numbers: defaultdict[str, int] = defaultdict(self._next.__next__, zip(keep, count()))
        self._num_kept = len(keep)
        self._max_types = max_types
        self._counts = np.zeros((2, max(1024, 2 * len(keep))), dtype=np.int64)  # (train and held-out, words)
        self._num_numbers = len(keep)
        self.num_forgotten = 0  # words
        self.num_forgotten_tokens = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, words: Sequence[str], train: np.ndarray, heldout: np.ndarray | None = None) -> np.ndarray:
        """Adds counts of distinct words; gives their numbers, (len(words),) int32."""
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int32, count=len(words))
        self._num_numbers = max(self._num_numbers, int(numbers.max(initial=-1)) + 1)
        if self._num_numbers > self._counts.shape[1]:
            grown = np.zeros((2, 2 * self._num_numbers), dtype=np.int64)
            grown[:, : self._counts.shape[1]] = self._counts
            self._counts = grown
        self._counts[0, numbers] += train
        if heldout is not None:
            self._counts[1, numbers] += heldout
        if len(self._numbers) > self._max_types:
            self._forget()
        return numbers

    def table(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        """All words still known, their numbers (int32), and how often each is in the training and held-out text.

        By falling count in the training text, equal counts by code points.
        """
        words, numbers = self._known()
        by_word = np.array(sorted(range(len(words)), key=words.__getitem__), dtype=np.int64)
        order = by_word[np.argsort(-self._counts[0, numbers[by_word]], kind="stable")]
        numbers = numbers[order]
        return [words[i] for i in order], numbers, self._counts[0, numbers], self._counts[1, numbers]

    def _known(self) -> tuple[list[str], np.ndarray]:
        words = list(self._numbers)
        return words, np.fromiter(self._numbers.values(), dtype=np.int32, count=len(words))

    def count(self, word: str) -> int:
        """How often a word was seen in the training text."""
        number = self._numbers.get(word)
        return 0 if number is None else int(self._counts[0, number])

    @property
    def num_numbers(self) -> int:
        """One more than the highest number given out, those of forgotten words included."""
        return self._num_numbers

    def _forget(self) -> None:
        words, numbers = self._known()
        total = self._counts[:, numbers].sum(axis=0)
        total[numbers < self._num_kept] = np.iinfo(np.int64).max
        level = np.sort(total)[len(total) // 2]  # the rarer half, and all as rare as its most frequent word
        gone = total <= min(level, np.iinfo(np.int64).max - 1)
        self.num_forgotten += int(gone.sum())
        self.num_forgotten_tokens += int(total[gone].sum())
        log.warning(
            "More than %d different words: %d of them, seen at most %d times, are forgotten and will be read as <UNK>.",
            self._max_types,
            int(gone.sum()),
            int(level),
        )
        kept = ((word, int(number)) for word, number, out in zip(words, numbers, gone, strict=True) if not out)
        self._numbers = defaultdict(self._next.__next__, kept)


def count_words(
    files: Iterable[str | Path],
    reading: Reading | None = None,
    *,
    num_workers: int | None = None,
    max_types: int = MAX_TYPES,
) -> WordCounts:
    """The words of a corpus and how often each occurs, counted in parallel."""
    reading = reading or Reading()
    counts = WordCounts((BOS, EOS, UNK), max_types=max_types)
    work = partial(tally_job, reading=reading)
    for tally in map_in_order(work, pieces(find_sources(files), replace=reading.errors == "replace"), num_workers):
        if error := next((facts.error for facts in tally.facts if facts.error), None):
            raise error
        counts.add(tally.words, np.bincount(tally.ids, minlength=len(tally.words)))
    return counts


def build_vocabulary(counts: WordCounts, *, max_size: int | None = None, min_count: int = 1) -> Vocabulary:
    """<S>, </S>, <UNK>, then the words seen min_count times or more, by falling count and then by code points.

    At most max_size lines, the first three included. Only counts of training text are looked at.
    """
    words, _, train, _ = counts.table()
    return Vocabulary(choose_words(words, train, max_size=max_size, min_count=min_count))


def choose_words(
    words: Sequence[str], counts: np.ndarray, *, max_size: int | None = None, min_count: int = 1
) -> list[str]:
    """The lines of a vocabulary from words sorted by falling count; see `build_vocabulary`."""
    if max_size is not None and max_size < 4:
        raise ConfigError(f"A vocabulary of {max_size} lines is too small.", "Three are <S>, </S> and <UNK>.")
    often = words[: int((counts >= max(1, min_count)).sum())]
    lines = [BOS, EOS, UNK, *(word for word in often if word not in (BOS, EOS, UNK))]
    return lines[:max_size]


def read_vocabulary(path: str | Path) -> Vocabulary:
    """A vocabulary made elsewhere: one word a line, CRLF or not; words with spaces inside are refused by line."""
    vocab = Vocabulary.from_file(path)
    if len(vocab) < 4:
        raise DataError(f"{path}: only {len(vocab)} lines.", "A vocabulary needs <S>, </S>, <UNK> and some words.")
    if spaced := next((i for i, word in enumerate(vocab.words) if len(word.split()) > 1), None):
        raise DataError(
            f"{path}:{spaced + 1}: {vocab.words[spaced][:60]!r} holds a space.",
            "One word a line and nothing else: no counts, no other columns.",
        )
    return vocab


def order_score(vocab: Vocabulary, counts: np.ndarray) -> float:
    """How well the order of a vocabulary agrees with a corpus' counts (V,): 1 sorted, about 0 random, below 0 reversed.

    Measured where it matters, in the surprise of the corpus' words under the sampler's log-uniform distribution over
    ranks: 0 is what a random order would give, 1 the order by falling count. A text of one kind and a vocabulary from
    another of the same language give 0.8 and more. The three special words are left out.
    """
    special = [vocab.bos, vocab.eos, vocab.unk]
    counted = np.delete(counts.astype(np.float64), special)
    ranks = np.arange(len(vocab), dtype=np.float64)
    surprise = -np.log(np.log((ranks + 2) / (ranks + 1)) / np.log(len(vocab) + 1))
    surprise = np.delete(surprise, special)
    total = counted.sum()
    if total == 0:
        return 1.0
    share = counted / total
    given, best, random = share @ surprise, np.sort(share)[::-1] @ np.sort(surprise), surprise.mean()
    return 1.0 if random - best < 1e-6 else float((random - given) / (random - best))


def require_sorted(score: float, source: str) -> None:
    """Refuses an order that does not follow frequency: the sampled softmax would learn from the wrong negatives."""
    if score < SORTED_ENOUGH:
        raise ConfigError(
            f"{source} is not sorted by falling frequency (order score {score:.2f}; 1 is sorted, 0 random).",
            "The sampled softmax draws negatives by rank: sort the list, let one be built, or use the full softmax.",
        )
