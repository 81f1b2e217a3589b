"""Several languages in one text: how often each is read in an epoch, and which held-out sentences are measured.

With temperature T, a language is read in proportion to size ** (1 / T), where size is its number of predictions (words
and sentence ends). T = 1 is the text as it is, 2 draws with square roots, and a large T gives all languages the same
share. An epoch has as many predictions as the text. A language with a larger share than in the text is repeated within
the epoch, one with a smaller share is read in part, each epoch another part: the number of times that a sentence was
read after any number of epochs differs from the expected number by less than one. All of this is computed from the
epoch and the position of a sentence, so that a run resumes exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from elmo.errors import DataError
from elmo.pretrain.data.stateless_random import random_uint64

_ONE = 1 << 32  # the number 1 in fixed point


@dataclass(frozen=True, kw_only=True)
class Language:
    """The training text of one language and how it is read."""

    name: str
    positions: int  # predictions per direction in its text: words and sentence ends
    share: float  # of the predictions of an epoch
    repetitions: float  # expected number of times that an epoch reads a sentence

    def to_dict(self) -> dict[str, Any]:
        """The language for the manifest of a prepared folder."""
        return asdict(self)


def sample_languages(positions: Mapping[str, int], temperature: float) -> tuple[Language, ...]:
    """The share and the repetitions of each language, from the sizes of their texts."""
    for name, count in positions.items():
        if count == 0:
            raise DataError(f"There is no training text of the language {name}.", "Check its files.")
    total = sum(positions.values())
    # relative to the whole text, so that large numbers do not overflow
    weights = {name: (count / total) ** (1 / temperature) for name, count in positions.items()}
    weight_sum = sum(weights.values())
    unchanged = temperature == 1 or len(positions) == 1
    languages = []
    for name, count in positions.items():
        share = count / total if unchanged else weights[name] / weight_sum
        repetitions = 1.0 if unchanged else share * total / count
        languages.append(Language(name=name, positions=count, share=share, repetitions=repetitions))
    return tuple(languages)


def count_occurrences(
    languages: np.ndarray, repetitions: Sequence[float], epoch: int, key: int, first: int = 0
) -> np.ndarray:
    """How many times an epoch reads each of consecutive sentences, (N,) int64.

    `languages` (N,) are indices in `repetitions`; `first` is the number of the first sentence. Sentence i with the
    random number u is read floor(u + (epoch + 1) r) - floor(u + epoch r) times, in fixed-point arithmetic.
    """
    numbers = np.arange(first, first + len(languages), dtype=np.uint64)
    draws = random_uint64(numbers, key) >> np.uint64(32)  # (N,), from 0 to below _ONE
    fixed = [round(r * _ONE) for r in repetitions]
    whole = np.array([r // _ONE for r in fixed], dtype=np.int64)[languages]  # (N,)
    part = np.array([r % _ONE for r in fixed], dtype=np.uint64)[languages]
    before = np.array([epoch * (r % _ONE) % _ONE for r in fixed], dtype=np.uint64)[languages]
    phase = (draws + before) % np.uint64(_ONE)
    result: np.ndarray = whole + ((phase + part) >> np.uint64(32)).astype(np.int64)
    return result


def heldout_samples(sources: Sequence[Mapping[str, Any]], max_words: int | None) -> dict[str, range]:
    """The numbers of the held-out sentences of each source file that are measured, about `max_words` words together.

    `sources` are the records of the manifest. With several languages, each has at most an equal part of `max_words`.
    Every n-th sentence is measured, so that the sources of a language keep their shares.
    """
    words: dict[str | None, int] = {}
    for source in sources:
        language = source.get("language")
        words[language] = words.get(language, 0) + source["heldout_tokens"]
    limit = None if max_words is None else max(1, max_words // max(1, sum(count > 0 for count in words.values())))
    samples: dict[str, range] = {}
    start = 0
    for source in sources:
        stop = start + source["heldout_sentences"]
        interval = 1 if limit is None else max(1, -(-words[source.get("language")] // limit))
        if stop > start:
            samples[source["path"]] = range(-(-start // interval) * interval, stop, interval)
        start = stop
    return samples
