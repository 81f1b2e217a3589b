"""Span F1 of arguments as CoNLL-2005's srl-eval.pl counts it. The last step of the srl task; no torch.

An argument is right when its role and all its pieces are: "C-A1" continues the A1 before it and both are one argument
(without an A1 before it, it is an A1 of its own). "R-A1" is a role like any other. V itself is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elmo.errors import DataError
from elmo.tasks.srl.data import Example
from elmo.text.metrics import Counts, check_lengths
from elmo.text.spans import spans_of_tags

METRIC = "f1"
_LEFT_OUT = ("V",)
Argument = tuple[str, tuple[tuple[int, int], ...]]  # role, its pieces


def score(gold: Sequence[Example], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Percentages over all arguments: f1 (the one that counts), precision, recall, f1_ROLE; perfect: predicates whose
    arguments are all right; span_f1: pieces by themselves, C-A1 as a role of its own, as many papers count.
    """
    check_lengths(gold, predicted, "predicates")
    total, pieces, perfect = Counts(), Counts(), Counts()
    by_role = defaultdict[str, Counts](Counts)
    for example, tags in zip(gold, predicted, strict=True):
        if example.tags is None:
            raise DataError("A predicate has no gold arguments to score against.")
        check_lengths(example.tags, tags, "tokens of a sentence")
        wanted, found = arguments_of(example.tags), arguments_of(tags)
        for argument in wanted | found:
            outcome = {"right": argument in wanted & found, "found": argument in found, "wanted": argument in wanted}
            for counts in (total, by_role[argument[0]]):
                counts.add(**outcome)
        perfect.add(right=wanted == found, found=1)
        bare_wanted, bare_found = ({s for s in spans_of_tags(t) if s[0] not in _LEFT_OUT} for t in (example.tags, tags))
        pieces.add(right=len(bare_wanted & bare_found), found=len(bare_found), wanted=len(bare_wanted))
    return {
        "f1": total.f1,
        "precision": total.precision,
        "recall": total.recall,
        "span_f1": pieces.f1,
        "perfect": perfect.precision,
        **{f"f1_{role}": by_role[role].f1 for role in sorted(by_role)},
    }


def arguments_of(tags: Sequence[str]) -> set[Argument]:
    """The arguments that tags mark, continuations joined to what they continue, the predicate left out."""
    pieces: list[list[tuple[int, int]]] = []
    roles: list[str] = []
    latest: dict[str, int] = {}
    for label, first, last in spans_of_tags(tags):
        role = label.removeprefix("C-")
        if label.startswith("C-") and role in latest:
            pieces[latest[role]].append((first, last))
            continue
        latest[role] = len(roles)
        roles.append(role)
        pieces.append([(first, last)])
    return {(role, tuple(spans)) for role, spans in zip(roles, pieces, strict=True) if role not in _LEFT_OUT}
