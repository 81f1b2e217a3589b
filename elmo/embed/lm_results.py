"""What a language model says of words in their context: scores, perplexity and substitutes, as plain results."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from elmo.embed.display import html_table


@dataclass(frozen=True, repr=False)
class Scores:
    """Log-probabilities (nats) of a sentence: forward of each word and of </S>; backward of <S> and of each word.

    A word outside the vocabulary has the probability of <UNK>, which stands for all such words together: it may be
    higher than that of a word in the vocabulary.
    """

    tokens: list[str]
    unknown: list[bool]  # of each token: whether it is outside the vocabulary
    forward: np.ndarray  # (n + 1,)
    backward: np.ndarray | None  # (n + 1,); None: the model has the forward direction only

    @property
    def log_prob(self) -> float:
        """The sum over the sentence, the mean of both directions if there are two; nan for an empty sentence.

        Nothing is predicted of it, and a sum of 0 would be the best of all sentences.
        """
        if not self.tokens:
            return math.nan
        if self.backward is None:
            return float(self.forward.sum())
        return float((self.forward.sum() + self.backward.sum()) / 2)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability of a prediction; nan for an empty sentence."""
        return math.exp(-self.log_prob / max(len(self.forward), 1))

    def __repr__(self) -> str:
        unknown = f", unknown={sum(self.unknown)}" if any(self.unknown) else ""
        numbers = f"log_prob={self.log_prob:.2f}, perplexity={self.perplexity:.2f}"
        return f"Scores({' '.join(self.tokens)!r}, {numbers}{unknown})"

    def _repr_html_(self) -> str:
        """For notebooks: the log-probabilities of each prediction."""
        words = [f"{token} (unknown)" if out else token for token, out in zip(self.tokens, self.unknown, strict=True)]
        columns = ["", *words, "</S>"], ["", "<S>", *words]
        rows = [["forward", *(f"{value:.2f}" for value in self.forward)]]
        tables = [html_table(columns[0], rows)]
        if self.backward is not None:
            tables.append(html_table(columns[1], [["backward", *(f"{value:.2f}" for value in self.backward)]]))
        return (
            f"<div>{''.join(tables)}<p>log-probability {self.log_prob:.2f}, perplexity {self.perplexity:.2f}</p></div>"
        )


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of a text, with the definition of the measure."""

    forward: float
    backward: float | None  # None: the model has the forward direction only
    mean: float
    num_words: int
    num_predictions: int  # per direction
    num_unknown: int  # words outside the vocabulary
    definition: str


@dataclass(frozen=True)
class Substitute:
    """A word that may replace another one, with its log-probability in context and the score that ranks it."""

    word: str
    log_prob: float  # summed over both directions, if there are two
    score: float  # log_prob - log p(word): a word's own frequency counts once, not twice; one direction: log_prob


@dataclass(frozen=True)
class SubstituteLists:
    """The words that fit best at one position, best first: by the left context, by the right context, and by both."""

    forward: list[Substitute]  # by log p(word | left)
    backward: list[Substitute] | None  # by log p(word | right); None: the model has the forward direction only
    both: list[Substitute]  # as `LanguageModel.substitutes`
