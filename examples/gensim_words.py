"""Static word vectors of a corpus, averaged over the uses of each word, in gensim; and as files for other tools.

    pip install gensim
    python examples/gensim_words.py

On the command line: elmo export words words.vec --corpus corpus.txt; elmo export words projector/ --format projector
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gensim.models import KeyedVectors

import elmo
from elmo.embed.vocabulary_vectors import vocabulary_vectors
from elmo.text.word2vec_format import write_word2vec

CORPUS = [
    "The judge sent the thief to prison .",
    "The lawyer spoke to the judge for an hour .",
    "A lawyer asked the court for more time .",
    "The court listened to the thief .",
    "Add the onions to the soup .",
    "Fry the onions and the garlic in butter .",
    "The soup needs more garlic and butter .",
]


def main(model: str = "default") -> None:
    found = vocabulary_vectors(elmo.load(model), corpus=CORPUS, layers="top")
    with tempfile.TemporaryDirectory() as folder:
        write_word2vec(Path(folder) / "words.bin", found.words, found.vectors, binary=True)
        words = KeyedVectors.load_word2vec_format(Path(folder) / "words.bin", binary=True)
    for word in ("lawyer", "garlic"):
        nearest = ", ".join(f"{other} {cosine:.2f}" for other, cosine in words.most_similar(word, topn=3))
        print(f"{word}: {nearest}")


if __name__ == "__main__":
    main(*sys.argv[1:])
