"""Average vectors of word senses, computed in one pass over a sense-tagged corpus for all layers.

Memory use does not depend on the length of the corpus: it holds one sum per sense of the requested lemmas, and the mean
and covariance of the vectors of all tagged words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elmo.probes.senses import Lemma, SenseText, Target, WordNet, lemma_of
from elmo.probes.vector_source import VectorSource
from elmo.progress import Progress

BLOCK = 1024  # vectors per matrix product
FORMS = ("plain", "centred", "whitened")


@dataclass(frozen=True, kw_only=True)
class SenseAverages:
    """The average vectors of S senses, and the distribution of the vectors of all tagged words."""

    senses: list[str]  # sense keys, grouped by lemma; within a lemma the most frequent first
    rows_by_lemma: dict[Lemma, range]  # the rows of a lemma in `senses`, `counts` and `means`
    counts: np.ndarray  # (S,) occurrences
    means: np.ndarray  # (S, L, D)
    centre: np.ndarray  # (L, D) mean of all tagged words
    covariance: np.ndarray  # (L, D, D) of all tagged words


def average_senses(
    source: VectorSource,
    texts: Callable[[], Iterable[SenseText]],  # called twice: to count, then to embed
    lemmas: set[Lemma],
    wordnet: WordNet,
    *,
    show: bool | None = None,
) -> SenseAverages:
    """Averages the vectors of all occurrences of each sense of the given lemmas."""
    counts: Counter[str] = Counter()
    num_words = 0
    for text in texts():
        counts.update(sense for target in text.targets for sense in target.senses)
        num_words += len(text.tokens)
    ranks = {sense: rank for lemma in lemmas for rank, sense in enumerate(wordnet.senses.get(lemma, []))}
    senses = [sense for sense in counts if lemma_of(sense) in lemmas]
    senses.sort(key=lambda sense: (lemma_of(sense), -counts[sense], ranks.get(sense, len(ranks)), sense))
    row_of = {sense: row for row, sense in enumerate(senses)}
    L, D = source.num_layers, source.dim
    sums = np.zeros((len(senses), L, D), dtype=np.float32)
    moments = _Moments(L, D)
    for target, vector in target_vectors(source, texts(), num_words, "embedding senses", show):
        moments.add(vector)
        for sense in target.senses:
            if sense in row_of:
                sums[row_of[sense]] += vector
    sense_counts = np.array([counts[sense] for sense in senses], dtype=np.float32)
    centre, covariance = moments.finish()
    return SenseAverages(
        senses=senses,
        rows_by_lemma=_rows_by_lemma(senses),
        counts=sense_counts,
        means=sums / np.maximum(sense_counts, 1.0)[:, None, None],
        centre=centre,
        covariance=covariance,
    )


def target_vectors(
    source: VectorSource, texts: Iterable[SenseText], num_words: int | None, label: str, show: bool | None = None
) -> Iterator[tuple[Target, np.ndarray]]:
    """Yields each target and its layers (L, D), the mean over its words."""
    pending: list[SenseText] = []  # read from `texts`, not embedded yet

    def sentences() -> Iterator[Sequence[str]]:
        for text in texts:
            pending.append(text)
            yield text.tokens

    with Progress(label, num_words, show=show) as progress:
        for layers in source.layers(sentences()):  # (L, n, D)
            text = pending.pop(0)
            for target in text.targets:
                yield target, layers[:, target.begin : target.end].mean(1).astype(np.float32)
            progress.advance(len(text.tokens))


def transform(averages: SenseAverages, form: str, shrink: float = 0.2) -> Callable[[np.ndarray], np.ndarray]:
    """The function on vectors (..., L, D) for one of FORMS.

    "plain" changes nothing, "centred" subtracts the centre, "whitened" subtracts the centre and whitens. Whitening uses
    C + shrink * (mean variance) instead of C, so that directions of low variance are not amplified.
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
    """Accumulates the mean and the covariance of each layer over a stream of vectors."""

    def __init__(self, num_layers: int, dim: int) -> None:
        self._block = np.zeros((BLOCK, num_layers, dim), dtype=np.float32)
        self._filled = self._count = 0
        self._total = np.zeros((num_layers, dim))
        self._products = np.zeros((num_layers, dim, dim))

    def add(self, vector: np.ndarray) -> None:
        self._block[self._filled] = vector
        self._filled += 1
        if self._filled == BLOCK:
            self._flush()

    def _flush(self) -> None:
        """Adds the block to the sums and empties it."""
        block = self._block[: self._filled].swapaxes(0, 1)  # (L, B, D)
        self._total += block.sum(1)
        self._products += block.swapaxes(1, 2) @ block
        self._count += self._filled
        self._filled = 0

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (L, D) and covariance (L, D, D)."""
        self._flush()
        count = max(self._count, 1)
        centre = self._total / count
        covariance = self._products / count - centre[:, :, None] * centre[:, None, :]
        return centre.astype(np.float32), covariance


def _rows_by_lemma(senses: Sequence[str]) -> dict[Lemma, range]:
    rows: dict[Lemma, range] = {}
    for row, sense in enumerate(senses):
        lemma = lemma_of(sense)
        rows[lemma] = range(rows[lemma].start if lemma in rows else row, row + 1)
    return rows
