"""How the cost of embedding grows: words per second by sentence length, call size, vocabulary and length of the text.

Each of the four is measured with the other three held constant. The cost per word does not depend on the length of its
sentence or of the text. Calls with few sentences use the processor less well, and each distinct word is encoded once.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.progress import Progress

LENGTHS = (5, 10, 20, 40, 80, 160, 320)  # words per sentence
CALLS = (1, 2, 4, 8, 16, 32, 64, 128)  # sentences per call
VOCABULARIES = (100, 300, 1_000, 3_000, 10_000)  # distinct words
TEXTS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)  # words
MAX_WORDS, MAX_SENTENCES = 10_000, 120  # per measurement; fewer if `seconds` is small
ROUNDS = 3

Task = Callable[[], list[list[str]]]  # embeds sentences and returns them


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measurement: the median of the rounds."""

    at: int  # value of the measured quantity
    words: int
    distinct: int
    seconds: float
    words_per_second: float


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Measurements from small to large, and the values that were left out because they would have taken too long."""

    says: str  # name of the measured quantity
    points: list[Point]
    left_out: tuple[int, ...] = ()


def measure_growth(
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    *,
    seconds: float,
    cpu_time: bool = False,
    show: bool | None = None,
) -> dict[str, Growth]:
    """All four measurements by name, in about `seconds` in total; tokenised `sentences` are repeated if too few."""
    clock = time.process_time if cpu_time else time.perf_counter
    words = list(itertools.chain.from_iterable(sentences))
    embedder.layers(_split_text(words, 20, 2_000))  # packs the weights
    speed = _measure_speed(embedder, words, clock)
    words_per_round = speed * seconds / 6 / (ROUNDS + 1)  # for each of the first three measurements
    num_words = int(min(MAX_WORDS, max(1_000, words_per_round / len(CALLS))))
    num_sentences = int(min(MAX_SENTENCES, max(8, words_per_round / sum(LENGTHS))))
    growths = {}
    total = ROUNDS * (num_sentences * sum(LENGTHS) + (len(CALLS) - 3 + len(VOCABULARIES)) * num_words)  # approximate
    with Progress("growth", total, show=show) as progress:

        def measure(says: str, values: Sequence[int], make_task: Callable[[int], Task]) -> Growth:
            tasks = [(value, make_task(value)) for value in values]
            times: dict[int, list[float]] = {value: [] for value in values}
            sizes: dict[int, tuple[int, int]] = {}
            for number in range(ROUNDS + 1):  # in turn, because other load on the machine then affects all values
                for value, task in tasks:
                    start = clock()
                    embedded = task()
                    if number:
                        times[value].append(clock() - start)
                    distinct = {word for sentence in embedded for word in sentence}
                    sizes[value] = sum(map(len, embedded)), len(distinct)
                    progress.advance(sizes[value][0] if number else 0)
            points = [_point(value, sizes[value], statistics.median(times[value])) for value in values]
            return Growth(says=says, points=points)

        growths["length"] = measure(
            "words per sentence",
            LENGTHS,
            lambda length: _cached_words_task(
                embedder, _split_text(words, length, length * num_sentences), num_sentences
            ),
        )
        growths["call"] = measure(
            "sentences per call",
            CALLS,
            lambda call_size: _cached_words_task(embedder, _split_text(words, 20, num_words), call_size),
        )
        growths["vocabulary"] = measure(
            "distinct words",
            [size for size in VOCABULARIES if size <= num_words],
            lambda size: _new_words_task(embedder, _split_text(_artificial_text(size, num_words), 20, num_words)),
        )
    growths["text"] = _measure_texts(embedder, sentences, seconds / 2, clock, show)
    return growths


def _measure_texts(
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    seconds: float,
    clock: Callable[[], float],
    show: bool | None,
) -> Growth:
    """Longer and longer texts, streamed into one vector per sentence, until the time is used up."""
    points: list[Point] = []
    seconds_left = seconds
    for number, num_words in enumerate(TEXTS):
        if points and num_words / points[-1].words_per_second > seconds_left:
            return Growth(says="words of text", points=points, left_out=TEXTS[number:])
        embedder.forget_words()
        distinct: set[str] = set()
        num_embedded, start = 0, clock()
        with Progress(f"{num_words:,} words", num_words, show=show) as progress:
            for _, num_tokens in embedder.pooled(_repeated(sentences, num_words, distinct)):
                num_embedded += num_tokens
                progress.advance(num_tokens)
        elapsed = clock() - start
        seconds_left -= elapsed
        points.append(_point(num_words, (num_embedded, len(distinct)), elapsed))
    return Growth(says="words of text", points=points)


def _repeated(sentences: Sequence[Sequence[str]], num_words: int, distinct: set[str]) -> Iterator[Sequence[str]]:
    """The sentences again and again up to a number of words; their words are added to `distinct`."""
    for sentence in itertools.cycle(sentences):
        if num_words <= 0:
            return
        distinct.update(sentence)
        yield sentence[:num_words]
        num_words -= len(sentence)


def _new_words_task(embedder: Embedder, sentences: list[list[str]]) -> Task:
    def run() -> list[list[str]]:
        embedder.forget_words()
        embedder.layers(sentences)
        return sentences

    return run


def _cached_words_task(embedder: Embedder, sentences: list[list[str]], call_size: int) -> Task:
    # all words are cached after the warm-up round; the cost of new words is measured by "vocabulary"
    few = sentences[: max(call_size, len(sentences) * call_size // 16)] if call_size < 16 else sentences

    def run() -> list[list[str]]:
        for start in range(0, len(few), call_size):
            embedder.layers(few[start : start + call_size])
        return few

    return run


def _split_text(words: Sequence[str], length: int, num_words: int) -> list[list[str]]:
    """Sentences of equal length from running text, which is repeated if it is too short."""
    text = list(itertools.islice(itertools.cycle(words), max(length, num_words // length * length)))
    return [text[start : start + length] for start in range(0, len(text), length)]


def _artificial_text(num_distinct: int, num_words: int) -> list[str]:
    """Artificial words of usual length with equal frequencies: random letters and a number."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    vocabulary = [f"{''.join(rng.choice(letters, size=rng.integers(2, 9)))}{i:x}" for i in range(num_distinct)]
    order = rng.permutation(num_words) % num_distinct
    return [vocabulary[i] for i in order]


def _measure_speed(embedder: Embedder, words: Sequence[str], clock: Callable[[], float]) -> float:
    sentences = _split_text(words, 20, 2_000)
    embedder.forget_words()
    start = clock()
    embedder.layers(sentences)
    return 2_000 / (clock() - start)


def _point(value: int, size: tuple[int, int], seconds: float) -> Point:
    words, distinct = size
    return Point(
        at=value, words=words, distinct=distinct, seconds=round(seconds, 4), words_per_second=round(words / seconds, 1)
    )
