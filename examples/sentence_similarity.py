"""Sentence similarity: one vector per sentence, and the sentences of a list that are nearest to a query.

python examples/sentence_similarity.py
python examples/sentence_similarity.py "Prices rose sharply ."
"""

from __future__ import annotations

import sys

import elmo

SENTENCES = [
    "The court ruled against the company on Monday .",
    "The judge rejected the appeal of the firm .",
    "Add the onions and cook them in butter .",
    "Boil the potatoes and drain them well .",
    "The striker scored twice in the second half .",
    "The team won the final match of the season .",
]


def main(query: str = "The supreme court heard the case on Tuesday .") -> None:
    embedder = elmo.load("english")
    vectors = embedder.encode(SENTENCES)  # (sentences, width): means over the words and the layers
    mean = vectors.mean(axis=0)  # without it, all cosines are large, because all sentences share common words
    cosines = embedder.similarity(embedder.encode(query) - mean, vectors - mean)[0]  # (sentences,)
    print(query)
    for number in cosines.argsort(descending=True).tolist():
        print(f"{cosines[number]:+.2f}  {SENTENCES[number]}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
