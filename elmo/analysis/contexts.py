"""Words with two senses each in short sentences, and how well the vectors of a layer separate the senses.

`elmo demo` runs on these sentences, which are in `word_senses/LANGUAGE.toml`. A word has the same form in all its
sentences, so that without context its vectors are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo.embed.embedder import Embedder
from elmo.embed.pool import normalize
from elmo.errors import ConfigError
from elmo.settings import read_toml

_TIE = 1e-5  # cosines that differ by less count as equal: without context, all uses of a word are equally near
_FOLDER = Path(__file__).parent / "word_senses"


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


@dataclass(frozen=True)
class Contexts:
    """Words with two senses each in sentences of one language, from a file of `word_senses`."""

    shown: str  # the word that `elmo demo` shows in detail
    sentence: tuple[str, ...]  # its score is compared with that of its words in reverse order
    words: dict[str, dict[str, list[str]]]  # word -> sense -> sentences

    def uses(self, words: Sequence[str] | None = None) -> list[Use]:
        """Every use of the words, sense by sense."""
        return [
            Use(word, sense, tuple(sentence.split()), sentence.split().index(word))
            for word in words or self.words
            for sense, sentences in self.words[word].items()
            for sentence in sentences
        ]


def languages() -> list[str]:
    """The languages that have sentences."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_contexts(language: str = "en") -> Contexts:
    """The words and sentences of a language."""
    if language not in languages():
        raise ConfigError(f"There are no sentences in the language {language!r}.", f"Known: {', '.join(languages())}.")
    table = read_toml(_FOLDER / f"{language}.toml")
    return Contexts(table["shown"], tuple(table["sentence"].split()), table["words"])


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
