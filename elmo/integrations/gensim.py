"""Static word vectors of a model as gensim's KeyedVectors; `elmo export words` writes files that gensim reads.

from elmo.integrations.gensim import keyed_vectors

words = keyed_vectors(elmo.load("english"), corpus="corpus.txt", layers="top")
words.most_similar("river")
"""

from __future__ import annotations

from typing import Any

from elmo.embed.embedder import Embedder
from elmo.embed.vocabulary_vectors import vocabulary_vectors
from elmo.files import require_extra


def keyed_vectors(embedder: Embedder, *arguments: Any, **options: Any) -> Any:
    """gensim's KeyedVectors of words without context, or of their means in a corpus.

    The arguments are those of `elmo.embed.vocabulary_vectors.vocabulary_vectors`: `words`, `corpus`, `layers` and
    others. Counts, where they are known, are the attribute "count" of a word.
    """
    models = require_extra("gensim.models", "gensim", "gensim")
    found = vocabulary_vectors(embedder, *arguments, **options)
    keyed = models.KeyedVectors(found.vectors.shape[1], count=0)
    keyed.add_vectors(found.words, found.vectors)
    if found.counts is not None:
        for word, count in zip(found.words, found.counts.tolist(), strict=True):
            keyed.set_vecattr(word, "count", count)
    return keyed
