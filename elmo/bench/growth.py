"""How cost grows: words a second against sentence length, sentences a call, distinct words and length of the text.

Each is measured with the other three held still. A word costs the same however long its sentence is and however long
the text: those are flat. Few sentences a call use the processor less well, and each distinct word is encoded once.
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

LENGTHS = (5, 10, 20, 40, 80, 160, 320)
CALLS = (1, 2, 4, 8, 16, 32, 64, 128)
VOCABULARIES = (100, 300, 1_000, 3_000, 10_000)
TEXTS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
WORDS, SENTENCES = 10_000, 120  # of a measurement at most; fewer where the time is short
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measurement: the median of the rounds."""

    at: int
    words: int
    distinct: int
    seconds: float
    words_per_second: float


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Measurements from small to large, and what was left out because it would have taken too long."""

    says: str
    points: list[Point]
    left_out: tuple[int, ...] = ()


def growth(
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    *,
    seconds: float,
    cpu_time: bool = False,
    show: bool | None = None,
) -> dict[str, Growth]:
    """All four by name, in about so many seconds in all; `sentences` are tokenised text, repeated where it is short."""
    clock = time.process_time if cpu_time else time.perf_counter
    words = list(itertools.chain.from_iterable(sentences))
    embedder.layers(_cut(words, 20, 2_000))  # packs the weights
    speed = _speed(embedder, words, clock)
    share = speed * seconds / 6 / (ROUNDS + 1)  # words of each of the first three, a round
    num_words = int(min(WORDS, max(1_000, share / len(CALLS))))
    num_sentences = int(min(SENTENCES, max(8, share / sum(LENGTHS))))
    found = {}
    total = ROUNDS * (num_sentences * sum(LENGTHS) + (len(CALLS) - 3 + len(VOCABULARIES)) * num_words)  # about
    with Progress("growth", total, show=show) as progress:

        def run(says: str, points: Sequence[int], make: Callable[[int], Callable[[], list[list[str]]]]) -> Growth:
            tasks = [(at, make(at)) for at in points]
            times: dict[int, list[float]] = {at: [] for at in points}
            sizes: dict[int, tuple[int, int]] = {}
            for number in range(ROUNDS + 1):  # in turn: what else the machine does falls on all
                for at, task in tasks:
                    start = clock()
                    embedded = task()
                    if number:
                        times[at].append(clock() - start)
                    sizes[at] = sum(map(len, embedded)), len({word for one in embedded for word in one})
                    progress.advance(sizes[at][0] if number else 0)
            return Growth(says=says, points=[_point(at, sizes[at], statistics.median(times[at])) for at in points])

        found["length"] = run(
            "words a sentence", LENGTHS, lambda at: _known(embedder, _cut(words, at, at * num_sentences), num_sentences)
        )
        found["call"] = run("sentences a call", CALLS, lambda at: _known(embedder, _cut(words, 20, num_words), at))
        vocabularies = [at for at in VOCABULARIES if at <= num_words]
        found["vocabulary"] = run(
            "distinct words", vocabularies, lambda at: _new(embedder, _cut(_made_up(at, num_words), 20, num_words))
        )
    found["text"] = _texts(embedder, sentences, seconds / 2, clock, show)
    return found


def _texts(
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    seconds: float,
    clock: Callable[[], float],
    show: bool | None,
) -> Growth:
    """Ever longer text, streamed into one vector a sentence; no longer than the time allows."""
    points: list[Point] = []
    left = seconds
    for number, at in enumerate(TEXTS):
        if points and at / points[-1].words_per_second > left:
            return Growth(says="words of text", points=points, left_out=TEXTS[number:])
        embedder.forget_words()
        distinct: set[str] = set()
        done, start = 0, clock()
        with Progress(f"{at:,} words", at, show=show) as progress:
            for _, num_tokens in embedder.pooled(_endless(sentences, at, distinct)):
                done += num_tokens
                progress.advance(num_tokens)
        taken = clock() - start
        left -= taken
        points.append(_point(at, (done, len(distinct)), taken))
    return Growth(says="words of text", points=points)


def _endless(sentences: Sequence[Sequence[str]], num_words: int, distinct: set[str]) -> Iterator[Sequence[str]]:
    for sentence in itertools.cycle(sentences):
        if num_words <= 0:
            return
        distinct.update(sentence)
        yield sentence[:num_words]
        num_words -= len(sentence)


def _new(embedder: Embedder, sentences: list[list[str]]) -> Callable[[], list[list[str]]]:
    def run() -> list[list[str]]:
        embedder.forget_words()
        embedder.layers(sentences)
        return sentences

    return run


def _known(embedder: Embedder, sentences: list[list[str]], each: int) -> Callable[[], list[list[str]]]:
    # all words known from the round that warms up: how many are new is the vocabulary's business
    few = sentences[: max(each, len(sentences) * each // 16)] if each < 16 else sentences

    def run() -> list[list[str]]:
        for start in range(0, len(few), each):
            embedder.layers(few[start : start + each])
        return few

    return run


def _cut(words: Sequence[str], length: int, num_words: int) -> list[list[str]]:
    """Sentences of that length from running text, repeated where it is short."""
    text = list(itertools.islice(itertools.cycle(words), max(length, num_words // length * length)))
    return [text[start : start + length] for start in range(0, len(text), length)]


def _made_up(distinct: int, num_words: int) -> list[str]:
    """Words that each come equally often: a letter, a number and a usual length."""
    draw = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    known = [f"{''.join(draw.choice(letters, size=draw.integers(2, 9)))}{number:x}" for number in range(distinct)]
    order = draw.permutation(num_words) % distinct
    return [known[i] for i in order]


def _speed(embedder: Embedder, words: Sequence[str], clock: Callable[[], float]) -> float:
    sentences = _cut(words, 20, 2_000)
    embedder.forget_words()
    start = clock()
    embedder.layers(sentences)
    return 2_000 / (clock() - start)


def _point(at: int, size: tuple[int, int], seconds: float) -> Point:
    words, distinct = size
    return Point(
        at=at, words=words, distinct=distinct, seconds=round(seconds, 4), words_per_second=round(words / seconds, 1)
    )
