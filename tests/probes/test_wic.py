"""Word-in-context probe: thresholds and pairs, on cases computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_vectors import RuleVectors

from elmo.errors import DataError
from elmo.probes.layer_averages import layer_average_names, layer_averages
from elmo.probes.wic import best_threshold, probe_wic, read_wic


def test_threshold_is_halfway_between_two_cosines():
    assert best_threshold(np.array([0.9, 0.1, 0.5, 0.3]), np.array([True, False, True, False])) == pytest.approx(0.4)


def test_threshold_when_all_are_the_same_or_all_differ():
    cosines = np.array([0.2, 0.8])
    assert best_threshold(cosines, np.array([True, True])) < 0.2
    assert best_threshold(cosines, np.array([False, False])) > 0.8


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=12))
def test_no_other_threshold_is_better(pairs):
    cosines = np.array([c / 5 for c, _ in pairs])
    same = np.array([s for _, s in pairs])
    num_correct = ((cosines >= best_threshold(cosines, same)) == same).sum()
    assert num_correct == max(((cosines >= t) == same).sum() for t in np.linspace(-1.1, 1.1, 23))


def test_layer_averages_are_each_layer_and_the_means_up_to_the_top():
    layers = np.array([[[1.0], [2.0], [6.0]]])  # (1, L=3, D=1)
    assert layer_average_names(3) == ["0", "1", "2", "0-2", "1-2"]
    assert layer_averages(layers)[0, :, 0].tolist() == [1.0, 2.0, 6.0, 3.0, 4.0]
    assert layer_average_names(1) == ["0"]


def write_pairs(folder, split, rows):
    data = [f"bank\tN\t{p}-{q}\t{a}\t{b}" for p, q, a, b, _ in rows]
    (folder / f"{split}.data.txt").write_text("\n".join(data) + "\n", encoding="utf-8")
    (folder / f"{split}.gold.txt").write_text("\n".join(row[-1] for row in rows) + "\n", encoding="utf-8")


ROWS = [
    (1, 1, "river bank", "river bank water", "T"),
    (1, 1, "money bank", "money bank", "T"),
    (1, 1, "river bank", "money bank", "F"),
    (1, 1, "money bank .", "river bank .", "F"),
]


def test_a_contextual_layer_separates_senses_and_a_static_layer_does_not(tmp_path):
    write_pairs(tmp_path, "train", ROWS)
    write_pairs(tmp_path, "dev", ROWS[1:3])
    context = {"river": [1, 0], "money": [0, 1]}
    source = RuleVectors(lambda s, i: [[1, 1], context.get(s[i - 1], [1, 1])], 2, 2)
    record = probe_wic(source, tmp_path)
    views = record["scores"]["views"]
    assert views["1"]["plain"]["dev"] == 100.0
    assert 0.0 < views["1"]["plain"]["threshold"] < 1.0
    assert views["0"]["plain"]["train"] == 50.0
    assert views["1"]["centred"]["train"] == 100.0
    assert record["scores"]["always_same"] == {"train": 50.0, "dev": 50.0}
    assert "test" not in record["data"]


def test_an_invalid_pair_is_an_error_with_its_line(tmp_path):
    write_pairs(tmp_path, "train", [(1, 5, "river bank", "money bank", "T")])
    with pytest.raises(DataError, match=r"train\.data\.txt:1: the position 1-5"):
        read_wic(tmp_path / "train.data.txt")
    write_pairs(tmp_path, "train", [(1, 1, "river bank", "money bank", "yes")])
    with pytest.raises(DataError, match="T or F"):
        read_wic(tmp_path / "train.data.txt")
