"""Words in context: the same word has another vector in every sentence, and its nearest uses share its sense.

python examples/words_in_context.py
python examples/words_in_context.py my-model/
"""

from __future__ import annotations

import sys

import numpy as np

import elmo

WORD = "bank"
SENTENCES = [
    "The bank raised its interest rates again last week .",
    "She deposited the money in her bank account .",
    "The bank approved the loan for their new house .",
    "They sat on the bank of the river and watched the boats .",
    "Tall trees grew along the muddy bank of the stream .",
    "The boat was tied to the far bank of the lake .",
]


def main(model: str = "english") -> None:
    embedder = elmo.load(model)
    tokens = [sentence.split() for sentence in SENTENCES]
    layers = embedder.layers(tokens)  # one array (layers, tokens, width) per sentence
    uses = np.stack([vectors[-1, words.index(WORD)] for vectors, words in zip(layers, tokens, strict=True)])  # (N, D)
    uses -= uses.mean(axis=0)  # what all uses of the word share
    uses /= np.linalg.norm(uses, axis=1, keepdims=True)
    cosines = uses @ uses.T  # (N, N)
    np.fill_diagonal(cosines, -1.0)
    for sentence, row in zip(SENTENCES, cosines, strict=True):
        print(f"{sentence}\n    nearest ({row.max():+.2f}): {SENTENCES[row.argmax()]}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
