"""Span F1 as conlleval counts it: an entity is right when its kind, first and last token are. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.ner.data import Example
from elmo.text.metrics import Counts, check_lengths
from elmo.text.spans import spans_of_tags

METRIC = "f1"


def score(gold: Sequence[Example], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Percentages over all sentences: f1 (the one that counts), precision, recall, accuracy of tags, and f1_KIND."""
    check_lengths(gold, predicted, "sentences")
    total, tokens, by_kind = Counts(), Counts(), defaultdict[str, Counts](Counts)
    for example, tags in zip(gold, predicted, strict=True):
        if example.tags is None:
            raise DataError("A sentence has no gold tags to score against.")
        check_lengths(example.tags, tags, "tokens of a sentence")
        wanted, found = set(spans_of_tags(example.tags)), set(spans_of_tags(tags))
        for span in wanted | found:
            right, is_found, is_wanted = span in wanted and span in found, span in found, span in wanted
            for counts in (total, by_kind[span.label]):
                counts.add(right=right, found=is_found, wanted=is_wanted)
        tokens.add(right=sum(a == b for a, b in zip(example.tags, tags, strict=True)), found=len(tags))
    return {
        "f1": total.f1,
        "precision": total.precision,
        "recall": total.recall,
        "accuracy": tokens.precision,
        **{f"f1_{kind}": by_kind[kind].f1 for kind in sorted(by_kind)},
    }
