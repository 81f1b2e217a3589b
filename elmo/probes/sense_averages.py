"""Average vectors of word senses, gathered in one pass over a sense-tagged text for all layers at once.

Memory holds a sum for each sense of the wanted lemmas and two moments of all tagged words, however long the text is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.probes.senses import Lemma, SenseText, Target, WordNet, lemma_of
from elmo.probes.vector_source import VectorSource
from elmo.progress import Progress

BLOCK = 1024  # vectors whose products are summed together
FORMS = ("plain", "centred", "whitened")


@dataclass(frozen=True, kw_only=True)
class SenseAverages:
    """The averages of senses, and what tells how all tagged words' vectors lie."""

    senses: list[str]  # grouped by lemma; within one the most frequent first
    rows: dict[Lemma, range]  # a lemma's rows in what follows
    counts: np.ndarray  # (S,)
    means: np.ndarray  # (S, L, D)
    centre: np.ndarray  # (L, D)
    covariance: np.ndarray  # (L, D, D)


def average_senses(
    source: VectorSource,
    texts: Callable[[], Iterable[SenseText]],  # called twice: to count, then to embed
    wanted: set[Lemma],
    wordnet: WordNet,
    *,
    show: bool | None = None,
) -> SenseAverages:
    """Averages over all occurrences of each sense of the wanted lemmas."""
    counts: Counter[str] = Counter()
    num_words = 0
    for text in texts():
        counts.update(sense for target in text.targets for sense in target.senses)
        num_words += len(text.tokens)
    ranks = {sense: rank for lemma in wanted for rank, sense in enumerate(wordnet.senses.get(lemma, []))}
    kept = [sense for sense in counts if lemma_of(sense) in wanted]
    kept.sort(key=lambda sense: (lemma_of(sense), -counts[sense], ranks.get(sense, len(ranks)), sense))
    row = {sense: number for number, sense in enumerate(kept)}
    L, D = source.num_layers, source.dim
    sums = np.zeros((len(kept), L, D), dtype=np.float32)
    moments = _Moments(L, D)
    for target, vector in target_vectors(source, texts(), num_words, "embedding senses", show):
        moments.add(vector)
        for sense in target.senses:
            if sense in row:
                sums[row[sense]] += vector
    per_sense = np.array([counts[sense] for sense in kept], dtype=np.float32)
    centre, covariance = moments.finish()
    return SenseAverages(
        senses=kept,
        rows=_ranges(kept),
        counts=per_sense,
        means=sums / np.maximum(per_sense, 1.0)[:, None, None],
        centre=centre,
        covariance=covariance,
    )


def target_vectors(
    source: VectorSource, texts: Iterable[SenseText], num_words: int | None, label: str, show: bool | None = None
) -> Iterator[tuple[Target, np.ndarray]]:
    """Each target and its layers (L, D), the mean over its words, streamed."""
    waiting: list[SenseText] = []

    def sentences() -> Iterator[Sequence[str]]:
        for text in texts:
            waiting.append(text)
            yield text.tokens

    with Progress(label, num_words, show=show) as progress:
        for layers in source.layers(sentences()):  # (L, n, D)
            text = waiting.pop(0)
            for target in text.targets:
                yield target, layers[:, target.begin : target.end].mean(1).astype(np.float32)
            progress.advance(len(text.tokens))


def transform(averages: SenseAverages, form: str, shrink: float = 0.2) -> Callable[[np.ndarray], np.ndarray]:
    """A function over (..., L, D): nothing, the centre taken away, or also whitened.

    Whitening is by C + shrink * mean variance, so that directions of little variance are not blown up.
    """
    if form == "plain":
        return lambda layers: layers
    if form == "centred":
        return lambda layers: layers - averages.centre
    maps = []
    for matrix in averages.covariance:
        values, axes = np.linalg.eigh(matrix)
        values = np.maximum(values, 0.0)
        scale = 1.0 / np.sqrt(values + shrink * values.mean() + 1e-12)
        maps.append(((axes * scale) @ axes.T).astype(np.float32))
    stacked = np.stack(maps)  # (L, D, D)
    return lambda layers: np.einsum("...ld,lde->...le", layers - averages.centre, stacked, optimize=True)


class _Moments:
    """Mean and covariance of each layer over a stream of vectors."""

    def __init__(self, num_layers: int, dim: int) -> None:
        self._block = np.zeros((BLOCK, num_layers, dim), dtype=np.float32)
        self._filled = self._number = 0
        self._total = np.zeros((num_layers, dim))
        self._products = np.zeros((num_layers, dim, dim))

    def add(self, vector: np.ndarray) -> None:
        self._block[self._filled] = vector
        self._filled += 1
        if self._filled == BLOCK:
            self._empty()

    def _empty(self) -> None:
        block = self._block[: self._filled].swapaxes(0, 1)  # (L, B, D)
        self._total += block.sum(1)
        self._products += block.swapaxes(1, 2) @ block
        self._number += self._filled
        self._filled = 0

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        self._empty()
        number = max(self._number, 1)
        centre = self._total / number
        covariance = self._products / number - centre[:, :, None] * centre[:, None, :]
        return centre.astype(np.float32), covariance


def _ranges(senses: Sequence[str]) -> dict[Lemma, range]:
    found: dict[Lemma, range] = {}
    for number, sense in enumerate(senses):
        lemma = lemma_of(sense)
        found[lemma] = range(found[lemma].start if lemma in found else number, number + 1)
    return found
