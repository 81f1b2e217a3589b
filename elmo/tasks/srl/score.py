"""Scorer of the srl task: F1 of arguments as CoNLL-2005's srl-eval.pl computes it. No torch.

An argument is correct if its role and all its spans are correct. "C-A1" continues the previous A1, and both are one
argument; without a previous A1 it is an A1 itself. "R-A1" is a role like any other. The predicate V is not scored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.srl.data import Example
from elmo.text.metrics import ScoreCounts, add_spans, check_lengths
from elmo.text.spans import spans_of_tags

METRIC = "f1"
_NOT_SCORED = ("V",)
Argument = tuple[str, tuple[tuple[int, int], ...]]  # role, its spans as (first, last)


def score(gold: Sequence[Example], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Percentages over all arguments: f1 (the main metric), precision, recall, and f1_ROLE.

    perfect is the share of predicates whose arguments are all correct. span_f1 scores each span separately, with C-A1
    as a role of its own, as many papers do.
    """
    check_lengths(gold, predicted, "predicates")
    total, spans, perfect = ScoreCounts(), ScoreCounts(), ScoreCounts()
    by_role = defaultdict[str, ScoreCounts](ScoreCounts)
    for example, tags in zip(gold, predicted, strict=True):
        if example.tags is None:
            raise DataError("A predicate has no gold arguments to score against.")
        check_lengths(example.tags, tags, "tokens of a sentence")
        gold_arguments, predicted_arguments = arguments_of(example.tags), arguments_of(tags)
        for argument in gold_arguments | predicted_arguments:
            is_gold, is_predicted = argument in gold_arguments, argument in predicted_arguments
            for counts in (total, by_role[argument[0]]):
                counts.add(correct=is_gold and is_predicted, predicted=is_predicted, gold=is_gold)
        perfect.add(correct=gold_arguments == predicted_arguments, predicted=1)
        add_spans(spans, *({s for s in spans_of_tags(t) if s.label not in _NOT_SCORED} for t in (example.tags, tags)))
    return {
        "f1": total.f1,
        "precision": total.precision,
        "recall": total.recall,
        "span_f1": spans.f1,
        "perfect": perfect.precision,
        **{f"f1_{role}": by_role[role].f1 for role in sorted(by_role)},
    }


def arguments_of(tags: Sequence[str]) -> set[Argument]:
    """The arguments that the tags mark, each joined with its continuations, without the predicate."""
    roles: list[str] = []
    role_spans: list[list[tuple[int, int]]] = []  # one list per item of `roles`
    latest: dict[str, int] = {}  # role: index of its last argument
    for label, first, last in spans_of_tags(tags):
        role = label.removeprefix("C-")
        if label.startswith("C-") and role in latest:
            role_spans[latest[role]].append((first, last))
            continue
        latest[role] = len(roles)
        roles.append(role)
        role_spans.append([(first, last)])
    return {(role, tuple(spans)) for role, spans in zip(roles, role_spans, strict=True) if role not in _NOT_SCORED}
