"""Scorer of the ner task: span F1 on cases computed by hand."""

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
    # gold: PER 0-1, LOC 3, ORG 0. predicted: PER 0-1, ORG 3, ORG 0, LOC 1. correct: PER and the second ORG
    scores = score(examples, predicted)
    assert scores["precision"] == pytest.approx(100 * 2 / 4)
    assert scores["recall"] == pytest.approx(100 * 2 / 3)
    assert scores[METRIC] == pytest.approx(100 * 4 / 7)
    assert scores["accuracy"] == pytest.approx(100 * 4 / 6)
    assert scores["f1_PER"] == 100
    assert scores["f1_ORG"] == pytest.approx(200 / 3)  # precision 1/2, recall 1/1
    assert scores["f1_LOC"] == 0


def test_a_span_with_one_wrong_boundary_lowers_precision_and_recall():
    scores = score(gold("B-PER I-PER I-PER"), [["B-PER", "I-PER", "O"]])
    assert scores["f1"] == 0
    assert scores["accuracy"] == pytest.approx(200 / 3)


def test_invalid_tag_sequences_are_read_as_conlleval_reads_them():
    # I-PER after O begins a span, I-LOC after B-PER begins another
    assert score(gold("O B-PER B-LOC"), [["O", "I-PER", "I-LOC"]])["f1"] == 100


def test_no_gold_and_no_predicted_spans_score_zero():
    assert score(gold("O O"), [["O", "O"]])["f1"] == 0


def test_the_published_example_of_conlleval():
    # the program's documentation: 459 phrases, 539 found, 371 correct give 68.83, 80.83 and 74.35
    gold_tags = ["B-X"] * 371 + ["B-X"] * 88 + ["O"] * 168
    predicted_tags = ["B-X"] * 371 + ["O"] * 88 + ["B-Y"] * 168
    scores = score(gold(*gold_tags), [[tag] for tag in predicted_tags])
    assert round(scores["precision"], 2) == 68.83
    assert round(scores["recall"], 2) == 80.83
    assert round(scores["f1"], 2) == 74.35


def test_a_prediction_of_another_length_is_an_error():
    with pytest.raises(DataError, match="tokens of a sentence"):
        score(gold("O O"), [["O"]])
    with pytest.raises(DataError, match="0 predictions for 1"):
        score(gold("O O"), [])
