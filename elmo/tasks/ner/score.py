"""Scorer of the ner task: span F1 as conlleval computes it, over all entities and per kind of entity. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.ner.data import Example
from elmo.text.metrics import ScoreCounts, add_spans, check_lengths
from elmo.text.spans import spans_of_tags

METRIC = "f1"


def score(gold: Sequence[Example], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Percentages over all sentences: f1 (the main metric), precision, recall, accuracy of tags, and f1_KIND."""
    check_lengths(gold, predicted, "sentences")
    total, tokens, by_kind = ScoreCounts(), ScoreCounts(), defaultdict[str, ScoreCounts](ScoreCounts)
    for example, tags in zip(gold, predicted, strict=True):
        if example.tags is None:
            raise DataError("A sentence has no gold tags to score against.")
        check_lengths(example.tags, tags, "tokens of a sentence")
        gold_spans, predicted_spans = set(spans_of_tags(example.tags)), set(spans_of_tags(tags))
        add_spans(total, gold_spans, predicted_spans)
        for kind in {span.label for span in gold_spans | predicted_spans}:
            of_kind = [{span for span in spans if span.label == kind} for spans in (gold_spans, predicted_spans)]
            add_spans(by_kind[kind], *of_kind)
        tokens.add(correct=sum(a == b for a, b in zip(example.tags, tags, strict=True)), predicted=len(tags))
    return {
        "f1": total.f1,
        "precision": total.precision,
        "recall": total.recall,
        "accuracy": tokens.precision,
        **{f"f1_{kind}": by_kind[kind].f1 for kind in sorted(by_kind)},
    }
