"""Exact match and F1 of answers as SQuAD's own script defines them. The last step; no torch.

Before comparing, both sides are lowercased and lose ASCII punctuation, the words a, an and the, and extra spaces. F1 is
over bags of words. Of several gold answers the best counts. Where a question has none, only an empty answer is right.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from elmo.tasks.squad.data import Example
from elmo.text.metrics import Counts, check_lengths, harmonic

METRIC = "f1"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def score(gold: Sequence[Example], predicted: Sequence[str]) -> dict[str, float]:
    """Percentages over questions: f1 (the one that counts) and exact_match. `predicted` are texts."""
    check_lengths(gold, predicted, "questions")
    exact, overlap = Counts(), Counts()
    for example, text in zip(gold, predicted, strict=True):
        wanted = [answer.text for answer in example.answers] or [""]
        exact.add(right=max(exact_match(text, answer) for answer in wanted), found=1)
        overlap.add(right=max(word_f1(text, answer) for answer in wanted), found=1)
    return {"f1": overlap.precision, "exact_match": exact.precision}


def exact_match(predicted: str, wanted: str) -> float:
    """1 where both are the same once normalised, else 0."""
    return float(normalize(predicted) == normalize(wanted))


def word_f1(predicted: str, wanted: str) -> float:
    """0 to 1: harmonic mean of the shares of predicted and of wanted words that both have."""
    found, gold = normalize(predicted).split(), normalize(wanted).split()
    if not found or not gold:
        return float(found == gold)
    shared = sum((Counter(found) & Counter(gold)).values())
    return harmonic(shared / len(found), shared / len(gold))


def normalize(text: str) -> str:
    """What is compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())
