"""How contextual the vectors of each layer are: anisotropy, self-similarity and similarity within a sentence.

The measures are those of Ethayarajh (2019, "How Contextual are Contextualized Word Representations?"): means of cosines
over very many pairs. The cosines between unit vectors sum to the square of the vectors' sum, so all pairs are counted
exactly from one sum per word, in one pass over the text, without sampling pairs.
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
    """Mean cosines of one layer; the other cosines minus the anisotropy are the effect of word and context."""

    layer: int
    anisotropy: float  # of different words, each word weighted equally: 0 if the directions are spread evenly
    self_similarity: float  # of two occurrences of one word: 1 if the context changes nothing
    sentence_similarity: float  # of a word with the mean of its sentence
    norm: float  # mean length of a vector


def layer_geometry(
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    *,
    min_count: int = 5,  # words with fewer occurrences are ignored
    max_words: int = 5000,  # if more words qualify, a random sample of this size is used
    seed: int = 0,
    show: bool | None = None,
) -> list[LayerGeometry]:
    """The geometry of each layer, over the words that occur at least `min_count` times in the sentences.

    Memory holds `max_words` vectors of every layer, independent of the length of the text.
    """
    if min_count < 2 or max_words < 2:
        raise ConfigError(f"min_count is {min_count} and max_words {max_words}; expected at least 2.")
    if embedder.state == "carry":
        raise ConfigError(
            "The embedder has state 'carry'; expected reset or warm.", "Geometry treats each sentence by itself."
        )
    counts = Counter(token for sentence in sentences for token in sentence)
    words = sorted(word for word, count in counts.items() if count >= min_count)
    if len(words) < 2:
        raise DataError(
            f"{len(words)} words occur {min_count} times in the text; expected 2 or more.",
            "Give more text. --min-count (in Python min_count) sets a smaller number.",
        )
    if len(words) > max_words:
        words = sorted(random.Random(seed).sample(words, max_words))
    rows = {word: row for row, word in enumerate(words)}
    L, D = embedder.num_layers, embedder.dim
    sums = np.zeros((L, len(words), D))  # (L, N, D): sums of unit vectors
    within, norms = np.zeros(L), np.zeros(L)
    num_tokens = num_sentences = 0
    with Progress("embedding", sum(map(len, sentences)), show=show) as progress:
        for sentence, layers in zip(sentences, embedder.stream(sentences, layers="all"), strict=True):  # (L, N, D)
            if not len(sentence):
                continue
            unit = normalize(layers.astype(np.float32))
            norms += np.linalg.norm(layers, axis=-1).sum(-1)
            mean = normalize(layers.mean(1, keepdims=True).astype(np.float32))  # (L, 1, D)
            within += (unit * mean).sum(-1).mean(-1)
            for position, token in enumerate(sentence):
                if token in rows:
                    sums[:, rows[token]] += unit[:, position]
            num_tokens += len(sentence)
            num_sentences += 1
            progress.advance(len(sentence))
    n = np.array([counts[word] for word in words], dtype=np.float64)  # (N,) for N words
    same_word = ((sums**2).sum(-1) - n) / (n * (n - 1))  # (L, N): mean over the pairs of a word's occurrences
    means = sums / n[None, :, None]  # (L, N, D)
    pairs = len(words) * (len(words) - 1)
    different_words = ((means.sum(1) ** 2).sum(-1) - (means**2).sum((1, 2))) / pairs  # (L,)
    return [
        LayerGeometry(
            layer=layer,
            anisotropy=float(different_words[layer]),
            self_similarity=float(same_word[layer].mean()),
            sentence_similarity=float(within[layer] / num_sentences),
            norm=float(norms[layer] / num_tokens),
        )
        for layer in range(L)
    ]
