"""Scorer of the squad task: exact match and F1 of answers as SQuAD's official script defines them. No torch.

Before the comparison both answers are normalised: converted to lower case, without ASCII punctuation, without the words
a, an and the, and without extra spaces. F1 is over bags of words. Of several gold answers the one with the best score
is used. For a question without gold answers only an empty prediction is correct.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from elmo.tasks.squad.data import Example
from elmo.text.metrics import ScoreCounts, check_lengths, harmonic_mean

METRIC = "f1"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def score(gold: Sequence[Example], predicted: Sequence[str]) -> dict[str, float]:
    """Percentages over questions: f1 (the main metric) and exact_match. `predicted` holds the texts of the answers."""
    check_lengths(gold, predicted, "questions")
    exact, overlap = ScoreCounts(), ScoreCounts()
    for example, text in zip(gold, predicted, strict=True):
        gold_answers = [answer.text for answer in example.answers] or [""]
        exact.add(correct=max(exact_match(text, answer) for answer in gold_answers), predicted=1)
        overlap.add(correct=max(word_f1(text, answer) for answer in gold_answers), predicted=1)
    return {"f1": overlap.precision, "exact_match": exact.precision}


def exact_match(predicted: str, gold: str) -> float:
    """1 if both answers are equal after normalisation, else 0."""
    return float(normalize(predicted) == normalize(gold))


def word_f1(predicted: str, gold: str) -> float:
    """F1 between the words of both answers, 0 to 1."""
    predicted_words, gold_words = normalize(predicted).split(), normalize(gold).split()
    if not predicted_words or not gold_words:
        return float(predicted_words == gold_words)
    num_shared = sum((Counter(predicted_words) & Counter(gold_words)).values())
    return harmonic_mean(num_shared / len(predicted_words), num_shared / len(gold_words))


def normalize(text: str) -> str:
    """The form in which answers are compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())
