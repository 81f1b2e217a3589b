"""Six words with two senses each in short sentences, and how well the vectors of a layer separate the senses.

`elmo demo` runs on these sentences. They were written for this package and are free to use with it. Tokens are
separated by spaces, and a word has the same form in all its sentences, so that without context its vectors are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.pool import normalize

_TIE = 1e-5  # cosines that differ by less count as equal: without context, all uses of a word are equally near

CONTEXTS: dict[str, dict[str, tuple[str, ...]]] = {  # word -> sense -> sentences
    "bank": {
        "money": (
            "The bank raised its interest rates again last week .",
            "She had borrowed the money from a bank in the city .",
            "He paid the cheque into his account at the bank .",
            "The largest bank in the country lent them half of the sum .",
        ),
        "river": (
            "They sat on the bank of the river and watched the boats .",
            "The boat drifted towards the far bank of the stream .",
            "Reeds grew along the muddy bank below the bridge .",
            "We walked up the river , keeping close to the bank .",
        ),
    },
    "cell": {
        "biology": (
            "The nucleus of the cell contains most of its genes .",
            "Each cell of the tissue divides once a day .",
            "The protein is found in the membrane of the cell .",
            "The virus enters the cell and makes copies of itself .",
        ),
        "prison": (
            "The prisoner was led back to his cell by two guards .",
            "He spent eleven years alone in a narrow cell .",
            "The door of the cell was locked and the window barred .",
            "She shared her cell with a woman who was awaiting trial .",
        ),
    },
    "court": {
        "law": (
            "The court held that the contract was not valid .",
            "The lower court dismissed the case for want of evidence .",
            "She will appeal to a higher court against the sentence .",
            "The judge told the court that the witness was ill .",
        ),
        "palace": (
            "The painter was received at the court of the king .",
            "The queen and her ladies left the court for the country .",
            "He spent his youth as a page at the court of France .",
            "Poets and musicians lived at the court of the emperor .",
        ),
    },
    "light": {
        "lamp": (
            "The light of the lamp fell upon the open book .",
            "A faint light shone through the window of the tower .",
            "She turned off the light and closed the door .",
            "The light of the moon lay upon the water .",
        ),
        "weight": (
            "The box was so light that a child could carry it .",
            "She packed a light bag and took the early train .",
            "They had only a light meal before the journey .",
            "A light coat is enough at this time of the year .",
        ),
    },
    "play": {
        "theatre": (
            "He wrote a play in five acts about the war .",
            "The first play of the season was performed in London .",
            "The actors in the play were praised by the critics .",
            "Her new play is set in a small town in Ireland .",
        ),
        "game": (
            "The children went out to play in the garden .",
            "They will play the second match of the tour on Sunday .",
            "He hopes to play for the national team next year .",
            "We used to play cards every evening after dinner .",
        ),
    },
    "spring": {
        "season": (
            "The trees are in blossom early in the spring .",
            "In the spring of 1920 they moved to Paris .",
            "The birds return every spring to build their nests .",
            "After a cold winter came a warm and sunny spring .",
        ),
        "water": (
            "They drank from a clear spring at the foot of the hill .",
            "The water of the spring is hot and tastes of iron .",
            "A stream rises from a spring among the rocks .",
            "The village takes its water from a spring in the forest .",
        ),
    },
}


@dataclass(frozen=True)
class Use:
    """An occurrence of a word in a sentence, and the sense that it has there."""

    word: str
    sense: str
    tokens: tuple[str, ...]
    position: int


@dataclass(frozen=True)
class Separation:
    """How well one layer separates the senses of one word."""

    within: float  # mean cosine of two uses in the same sense
    between: float  # mean cosine of two uses in different senses
    nearest: float  # share of uses whose nearest other use has the same sense; ties count in proportion


def all_uses(words: Sequence[str] = tuple(CONTEXTS)) -> list[Use]:
    """Every use of the words, sense by sense."""
    return [
        Use(word, sense, tuple(sentence.split()), sentence.split().index(word))
        for word in words
        for sense, sentences in CONTEXTS[word].items()
        for sentence in sentences
    ]


def sentence_layers(embedder: Embedder, uses: Sequence[Use]) -> list[np.ndarray]:
    """All layers of the whole sentence of each use, (L+1, N, D) each."""
    return list(embedder.stream([use.tokens for use in uses], layers="all"))


def word_vectors(uses: Sequence[Use], layers: Sequence[np.ndarray]) -> np.ndarray:
    """The vectors of the used words, (L+1, N, D) for N uses, from the result of `sentence_layers`."""
    return np.stack([sentence[:, use.position] for use, sentence in zip(uses, layers, strict=True)], axis=1)


def separation(vectors: np.ndarray, senses: Sequence[str]) -> Separation:
    """The separation of the vectors (N, D) of a word's uses; each sense must have at least two uses."""
    unit = normalize(vectors)
    cosines = unit @ unit.T  # (N, N)
    same = np.array([[a == b for b in senses] for a in senses])  # (N, N)
    others = ~np.eye(len(senses), dtype=bool)  # (N, N)
    hits = []
    for row in range(len(senses)):
        best = cosines[row][others[row]].max()
        nearest = others[row] & (cosines[row] >= best - _TIE)
        hits.append(same[row][nearest].mean())
    return Separation(
        within=float(cosines[same & others].mean()),
        between=float(cosines[~same].mean()),
        nearest=float(np.mean(hits)),
    )
