"""How contextual each layer's vectors are: anisotropy, self-similarity and likeness within a sentence.

Measures after Ethayarajh (2019, "How Contextual are Contextualized Word Representations?"). They are means of cosines
over very many pairs; since the cosines between unit vectors sum to the square of the vectors' sum, all pairs are
counted exactly from one sum a word, in one pass over the text, without sampling pairs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.pool import normalize
from elmo.errors import ConfigError, DataError
from elmo.progress import Progress


@dataclass(frozen=True, kw_only=True)
class LayerGeometry:
    """One layer's cosines. Subtract the anisotropy from the others to see what is due to context and word."""

    layer: int
    anisotropy: float  # between occurrences of different words, all words equally: 0 when directions are spread evenly
    self_similarity: float  # between occurrences of one word: 1 when context changes nothing
    sentence_similarity: float  # of a word with the mean of its sentence
    norm: float  # mean length of a vector


def layer_geometry(
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    *,
    min_count: int = 5,  # occurrences a word needs
    max_words: int = 5000,  # words looked at; drawn by lot when there are more
    seed: int = 0,
    show: bool | None = None,
) -> list[LayerGeometry]:
    """The geometry of each layer over the words that occur often enough in these sentences.

    Memory: max_words vectors of every layer, whatever the length of the text.
    """
    if min_count < 2 or max_words < 2:
        raise ConfigError(f"min_count is {min_count} and max_words {max_words}; expected at least 2.")
    if embedder.state == "carry":
        raise ConfigError("Geometry was asked for with state 'carry'.", "Use reset or warm: sentences stand alone.")
    counts = Counter(token for sentence in sentences for token in sentence)
    words = sorted(word for word, count in counts.items() if count >= min_count)
    if len(words) < 2:
        raise DataError(
            f"{len(words)} words occur {min_count} times in the text; expected 2 or more.", "Give more text."
        )
    if len(words) > max_words:
        words = sorted(random.Random(seed).sample(words, max_words))
    rows = {word: row for row, word in enumerate(words)}
    L, D = embedder.num_layers, embedder.dim
    sums = np.zeros((L, len(words), D))  # of unit vectors
    within, norms = np.zeros(L), np.zeros(L)
    num_tokens = num_sentences = 0
    with Progress("embedding", sum(map(len, sentences)), show=show) as progress:
        for sentence, layers in zip(sentences, embedder.stream(sentences, layers="all"), strict=True):  # (L, n, D)
            if not len(sentence):
                continue
            unit = normalize(layers.astype(np.float32))
            norms += np.linalg.norm(layers, axis=-1).sum(-1)
            mean = normalize(layers.mean(1, keepdims=True).astype(np.float32))  # (L, 1, D)
            within += (unit * mean).sum(-1).mean(-1)
            for place, token in enumerate(sentence):
                if token in rows:
                    sums[:, rows[token]] += unit[:, place]
            num_tokens += len(sentence)
            num_sentences += 1
            progress.advance(len(sentence))
    n = np.array([counts[word] for word in words], dtype=np.float64)  # (W,)
    alike = ((sums**2).sum(-1) - n) / (n * (n - 1))  # (L, W): mean over a word's pairs of occurrences
    means = sums / n[None, :, None]  # (L, W, D)
    pairs = len(words) * (len(words) - 1)
    across = ((means.sum(1) ** 2).sum(-1) - (means**2).sum((1, 2))) / pairs  # (L,)
    return [
        LayerGeometry(
            layer=layer,
            anisotropy=float(across[layer]),
            self_similarity=float(alike[layer].mean()),
            sentence_similarity=float(within[layer] / num_sentences),
            norm=float(norms[layer] / num_tokens),
        )
        for layer in range(L)
    ]
