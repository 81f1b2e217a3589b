"""Metrics: span F1 by conlleval's rules and accuracy, on cases computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.text.metrics import ScoreCounts, accuracy, span_counts
from elmo.text.spans import spans_of_tags


def spans(tags):
    return [(span.first, span.last + 1, span.label) for span in spans_of_tags(tags)]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER O", [(1, 3, "PER")]),
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("O I-LOC I-LOC", [(1, 3, "LOC")]),  # a span may begin with I-
        ("B-PER I-LOC", [(0, 1, "PER"), (1, 2, "LOC")]),  # another type begins another span
        ("I-ORG O I-ORG", [(0, 1, "ORG"), (2, 3, "ORG")]),
        ("B-X-Y I-X-Y", [(0, 2, "X-Y")]),
        ("O O", []),
        ("", []),
    ],
)
def test_spans_are_read_as_conlleval_reads_them(tags, expected):
    assert spans(tags.split()) == expected


def test_only_exact_spans_are_correct():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]  # 3 spans
    predicted = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "B-ORG"]]  # 4 spans, 2 correct: LOC and the first ORG
    counts = span_counts(gold, predicted)
    assert counts == ScoreCounts(correct=2, predicted=4, gold=3)
    assert counts.precision == pytest.approx(50.0)
    assert counts.recall == pytest.approx(200 / 3)
    assert counts.f1 == pytest.approx(400 / 7)  # 2 * 2 / (4 + 3)


def test_f1_without_spans_is_zero():
    assert span_counts([["O"]], [["O"]]).f1 == 0.0


@given(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"])))
def test_spans_cover_exactly_the_words_that_are_not_outside(tags):
    covered = [position for begin, end, _ in spans(tags) for position in range(begin, end)]
    assert covered == [position for position, tag in enumerate(tags) if tag != "O"]
    assert span_counts([tags], [tags]).f1 == (100.0 if covered else 0.0)


def test_accuracy_is_in_percent():
    assert accuracy(["a", "b", "x", "d"], ["a", "b", "c", "d"]) == 75.0
