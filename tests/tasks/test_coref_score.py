"""Scorer of the coref task: the published test cases of the reference scorer, and comparisons with brute force.

Each letter is a mention. The values are (recall, precision) from the documentation of the reference scorer.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.coref.data import Example
from elmo.tasks.coref.score import METRIC, METRICS, best_alignment, evaluate, score

A = "a bc def"
PUBLISHED = [  # key, response, metric, recall, precision
    (A, A, "muc", 1, 1),
    (A, A, "b3", 1, 1),
    (A, A, "ceafe", 1, 1),
    (A, A, "lea", 1, 1),
    (A, "a de", "muc", 1 / 3, 1),
    (A, "a de", "b3", 7 / 18, 1),
    (A, "a de", "ceafe", 0.6, 0.9),
    (A, "a de", "lea", 2 / 6, 1),
    (A, "a bcx defy z", "muc", 1, 3 / 5),
    (A, "a bcx defy z", "b3", 1, 55 / 108),
    (A, "a bcx defy z", "ceafe", (1 + 4 / 5 + 6 / 7) / 3, (1 + 4 / 5 + 6 / 7) / 4),
    (A, "a bcx defy z", "lea", 1, (1 + 1 + 2) / 9),
    (A, "a bcx dy z", "muc", 1 / 3, 1 / 3),
    (A, "a bcx dy z", "b3", 5 / 9, 17 / 42),
    (A, "a bcx dy z", "ceafe", 2.2 / 3, 2.2 / 4),
    (A, "a bcx dy z", "lea", 3 / 6, 2 / 7),
    (A, "a bcxB dy z", "muc", 1 / 3, 1 / 4),
    (A, "a bcxB dy z", "b3", 5 / 9, 5 / 16),
    (A, "a bcxB dy z", "ceafe", (1 + 4 / 6 + 2 / 5) / 3, (1 + 4 / 6 + 2 / 5) / 4),
    (A, "a bcxB dy z", "lea", 3 / 6, (1 + 4 / 6) / 8),
    (A, "a bcx dy Bz", "muc", 1 / 3, 1 / 4),
    (A, "a bcx dy Bz", "b3", 5 / 9, 17 / 48),
    (A, "a b c d e f", "muc", 0, 0),
    (A, "a b c d e f", "b3", 3 / 6, 1),
    (A, "a b c d e f", "lea", 1 / 6, 1 / 6),
    (A, "abcdef", "muc", 1, 3 / 5),
    (A, "abcdef", "b3", 1, 7 / 18),
    (A, "abcdef", "lea", 5 / 6, 4 / 15),
    (A, "a x y c d e z", "b3", 13 / 36, 4 / 7),
    (A, "a x y c d e z", "lea", 1 / 6, 1 / 7),
    (A, "axycdez", "muc", 1 / 3, 1 / 6),
    (A, "axycdez", "b3", 17 / 36, 6 / 49),
    (A, "axycdez", "lea", 1 / 6, 1 / 21),
    ("ab cde", "bcx de", "lea", 1 / 5, 2 / 5),
    ("ab cde fg", "bcx de fg", "lea", 3 / 7, 4 / 7),
    ("12345 67 89ABC", "12345 6789ABC", "muc", 1, 9 / 10),
    ("12345 67 89ABC", "12345 6789ABC", "b3", 1, 16 / 21),
    ("12345 67 89ABC", "12345 6789ABC", "lea", 1, (5 + 7 * 11 / 21) / 12),
    ("12345 67 89ABC", "1234589ABC 67", "muc", 1, 9 / 10),
    ("12345 67 89ABC", "1234589ABC 67", "b3", 1, 7 / 12),
    ("12345 67 89ABC", "1234589ABC 67", "lea", 1, (10 * 20 / 45 + 2) / 12),
    ("ABCD", "AB CD", "muc", 2 / 3, 1),
    ("ABCD", "AB CD", "lea", 2 / 6, 1),
    ("AB CD", "ABCD", "muc", 1, 2 / 3),
    ("AB CD", "ABCD", "lea", 1, 2 / 6),
    ("ABC", "AC", "muc", 1 / 2, 1),
    ("BCDEGHJ", "ABC DEF GHI", "muc", 3 / 6, 3 / 6),
    ("BCDEGHJ", "ABC DEF GHI", "lea", 3 / 21, 3 / 9),
    ("ABC DEFG", "AB CD FGH", "muc", 2 / 5, 2 / 4),
    ("ABC DEFG", "AB CD FGH", "lea", (1 + 4 / 6) / 7, 3 / 7),
    ("abcdef", "ab cde f", "lea", 4 / 15, 5 / 6),
    ("abcdef", "abcxyz", "lea", 3 / 15, 3 / 15),
    ("abcdef", "ab cxy z", "lea", 1 / 15, 2 / 6),
    ("a b c d e f", "a b c d e f", "b3", 1, 1),
    ("a b c d e f", "a b c d e f", "ceafe", 1, 1),
    ("a b c d e f", "a b c d e f", "muc", 0, 0),
    ("a b c d e f", "ab cde f", "lea", 1 / 6, 1 / 6),
    ("a b c d e f", "a b c x y z", "lea", 3 / 6, 3 / 6),
]


def clusters(text):
    return [list(word) for word in text.split()]


@pytest.mark.parametrize(("key", "response", "metric", "recall", "precision"), PUBLISHED)
def test_the_reference_scorers_published_cases(key, response, metric, recall, precision):
    measured_precision, measured_recall, f1 = evaluate(METRICS[metric], [(clusters(key), clusters(response))])
    assert measured_recall == pytest.approx(100 * recall)
    assert measured_precision == pytest.approx(100 * precision)
    assert f1 == pytest.approx(200 * recall * precision / (recall + precision) if recall + precision else 0)


def document(text):
    return Example(
        sentences=(("w",) * 128,), clusters=tuple(tuple((ord(c), ord(c)) for c in word) for word in text.split())
    )


def mentions(text):
    return [[(ord(c), ord(c)) for c in word] for word in text.split()]


def test_a_repeated_mention_counts_once():
    # the published cases 7 and 8: b is repeated in the same cluster, or in another one
    expected = score([document(A)], [mentions("a bcx dy z")], singletons=True)
    assert score([document(A)], [mentions("a bcxb dy z")], singletons=True) == expected
    assert score([document(A)], [mentions("a bcx dy bz")], singletons=True) == expected
    assert expected["ceafe_f1"] == pytest.approx(62.857, abs=1e-3)


def test_the_average_and_documents_summed_by_hand():
    # two documents: 1 of 3 and 1 of 1 gold links are correct, 1 of 1 and 1 of 1 predicted links
    scores = score([document("abcd"), document("ef")], [mentions("ab"), mentions("ef")])
    assert scores["muc_recall"] == pytest.approx(50)
    assert scores["muc_precision"] == 100
    # b3 recall: (2 * 2/4 + 2) / 6; ceafe: (4/6 + 1) / 2 both ways
    assert scores["b3_recall"] == pytest.approx(50)
    assert scores["b3_precision"] == 100
    assert scores["ceafe_f1"] == pytest.approx(100 * 5 / 6)
    assert scores["mention_recall"] == pytest.approx(100 * 4 / 6)
    assert scores[METRIC] == pytest.approx((200 / 3 + 200 / 3 + 250 / 3) / 3)


def test_singletons_are_scored_only_on_request():
    assert score([document("a bc")], [mentions("bc d")])[METRIC] == pytest.approx(100)
    assert score([document("a bc")], [mentions("bc d")], singletons=True)[METRIC] < 100


def test_empty_sides_give_zero():
    assert score([document("ab")], [[]])[METRIC] == 0
    assert score([document("")], [mentions("ab")])[METRIC] == 0
    with pytest.raises(DataError, match="no gold clusters"):
        score([Example(sentences=(("a",),))], [[]])


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_the_best_alignment_equals_brute_force(n, m, data):
    similarity = np.array([[data.draw(st.floats(0, 1)) for _ in range(m)] for _ in range(n)])
    wide = similarity if n <= m else similarity.T
    alignments = permutations(range(wide.shape[1]), wide.shape[0])
    best = max(sum(wide[row, column] for row, column in enumerate(columns)) for columns in alignments)
    assert best_alignment(similarity) == pytest.approx(best, abs=1e-9)


@given(st.data())
def test_a_response_equal_to_the_key_is_perfect(data):
    cluster_ids = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=12))
    groups = [[(n, n) for n, cluster_id in enumerate(cluster_ids) if cluster_id == k] for k in range(5)]
    key = tuple(tuple(group) for group in groups if len(group) > 1)
    if key:
        scores = score([Example(sentences=(("w",) * 12,), clusters=key)], [reversed(key)])
        assert all(value == pytest.approx(100) for value in scores.values())
