"""Span F1 on cases worked by hand."""

from __future__ import annotations

import pytest

from elmo.errors import DataError
from elmo.tasks.ner.data import Example
from elmo.tasks.ner.score import METRIC, score


def gold(*rows):
    return [Example(tokens=tuple("w" * len(row.split())), tags=tuple(row.split())) for row in rows]


def test_precision_recall_and_f1_by_hand():
    examples = gold("B-PER I-PER O B-LOC", "B-ORG O")
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["B-ORG", "B-LOC"]]
    # wanted: PER 0-1, LOC 3, ORG 0. found: PER 0-1, ORG 3, ORG 0, LOC 1. right: PER and the second ORG
    result = score(examples, predicted)
    assert result["precision"] == pytest.approx(100 * 2 / 4)
    assert result["recall"] == pytest.approx(100 * 2 / 3)
    assert result[METRIC] == pytest.approx(100 * 4 / 7)
    assert result["accuracy"] == pytest.approx(100 * 4 / 6)
    assert result["f1_PER"] == 100
    assert result["f1_ORG"] == pytest.approx(200 / 3)  # 1 of 2 found, 1 of 1 wanted
    assert result["f1_LOC"] == 0


def test_a_span_with_one_wrong_boundary_is_wrong_twice():
    result = score(gold("B-PER I-PER I-PER"), [["B-PER", "I-PER", "O"]])
    assert result["f1"] == 0
    assert result["accuracy"] == pytest.approx(200 / 3)


def test_tags_that_break_the_scheme_are_read_as_conlleval_reads_them():
    # I-PER after O begins a span, I-LOC after B-PER begins another
    assert score(gold("O B-PER B-LOC"), [["O", "I-PER", "I-LOC"]])["f1"] == 100


def test_nothing_wanted_and_nothing_found_is_zero_not_an_error():
    assert score(gold("O O"), [["O", "O"]])["f1"] == 0


def test_the_published_example_of_conlleval():
    # the program's documentation: 459 phrases, 539 found, 371 right give 68.83, 80.83 and 74.35
    rows = ["B-X"] * 371 + ["B-X"] * 88 + ["O"] * 168
    found = ["B-X"] * 371 + ["O"] * 88 + ["B-Y"] * 168
    result = score(gold(*rows), [[tag] for tag in found])
    assert round(result["precision"], 2) == 68.83
    assert round(result["recall"], 2) == 80.83
    assert round(result["f1"], 2) == 74.35


def test_a_prediction_of_another_length_is_an_error():
    with pytest.raises(DataError, match="tokens of a sentence"):
        score(gold("O O"), [["O"]])
    with pytest.raises(DataError, match="0 predictions for 1"):
        score(gold("O O"), [])
