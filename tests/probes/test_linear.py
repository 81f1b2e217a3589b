"""Linear probes find what a layer holds, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from made_vectors import MadeVectors

from elmo.probes.linear import FitConfig, fit, view_names
from elmo.probes.tagging import probe_tags

NUM_LABELS = 4


def made(number, seed):
    """Layer 0 is noise; layer 1 holds the label in one direction each, far off centre and on odd scales."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_LABELS, number)
    layers = rng.normal(size=(number, 2, 6))
    layers[np.arange(number), 1, labels] += 4.0
    return (layers * [1, 100, 0.01, 1, 1, 1] + [0, 0, 0, 50, 0, 0]).astype(np.float16), labels


def fit_made(**config):
    train, dev, test = made(600, 0), made(200, 1), made(200, 2)

    def score(guesses):
        return float((guesses == dev[1]).mean())

    found = fit(train, dev[0], test[0], NUM_LABELS, score, FitConfig(batch=32, **config))
    return found, {one.view: float((one.predictions == test[1]).mean()) for one in found}


def test_views_of_one_layer_and_of_more():
    assert view_names(1) == ["0"]
    assert view_names(3) == ["0", "1", "2", "mix", "concat"]


def test_the_layer_that_holds_the_label_is_found():
    found, right = fit_made(epochs=8)
    assert right["1"] > 0.93
    assert right["concat"] > 0.9
    assert right["0"] < 0.45
    mix = next(one for one in found if one.view == "mix")
    assert mix.layer_weights[1] > 0.55, "it starts at 0.5"
    assert sum(mix.layer_weights) == pytest.approx(1.0, abs=1e-3)


def test_the_same_seed_gives_the_same_predictions():
    first, _ = fit_made(epochs=2, seed=5)
    again, _ = fit_made(epochs=2, seed=5)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.predictions, other.predictions)


def test_fitting_stops_when_nothing_gets_better():
    train, dev = made(200, 0), made(50, 1)
    seen = []

    def score(guesses):
        seen.append(guesses)
        return 1.0

    found = fit(train, dev[0], dev[0], NUM_LABELS, score, FitConfig(epochs=50, patience=2))
    assert {one.epoch for one in found} == {1}
    assert len(seen) == 3 * len(found), "epoch 1 was best, 2 and 3 were no better"


def write_corpus(folder, lines):
    for split in ("train", "dev", "test"):
        (folder / f"{split}.conllu").write_text(lines, encoding="utf-8")


def test_a_record_has_scores_baseline_and_what_was_read(tmp_path):
    # the tag is that of the word before: context decides, the word itself does not
    rows = []
    for first, tag in (("red", "A"), ("blue", "B")):
        rows.append(f"1\t{first}\t_\tX\t_\n2\tthing\t_\t{tag}\t_\n")
    write_corpus(tmp_path, "\n".join(rows * 20))
    before = {"red": [1, 0], "blue": [0, 1]}
    source = MadeVectors(lambda s, i: [[i, i], before[s[i - 1]] if i else [0.5, 0.5]], 2, 2)
    config = FitConfig(epochs=30, batch=8, learning_rate=0.05)
    record = probe_tags(source, [tmp_path], column="upos", config=config)
    views = record["scores"]["views"]
    assert views["1"]["test"] == 100.0
    assert views["0"]["test"] == 75.0  # X and one of A and B
    assert record["scores"]["usual_tag"] == {"dev": 75.0, "test": 75.0}
    assert record["counts"] == {
        "labels": 3,
        "train_sentences": 40, "train_words": 80, "dev_sentences": 40, "dev_words": 80,
        "test_sentences": 40, "test_words": 80,
    }  # fmt: skip
    assert record["vectors"] == source.identity()
    assert len(record["data"]["train"]["sha256"]) == 64
    assert record["settings"]["seed"] == 0


def test_entities_are_scored_by_span(tmp_path):
    for split in ("train", "dev", "test"):
        sentence = "1\tin\tO\n2\tNew\tB-LOC\n3\tYork\tI-LOC\n\n1\tYork\tB-LOC\n\n"
        (tmp_path / f"{split}.iob2").write_text(sentence * 10, encoding="utf-8")
    # blind to case and place: York is always one tag, so one of its two readings is lost
    source = MadeVectors(lambda s, i: [[float(s[i] == "in"), float(s[i] == "New"), float(s[i] == "York")]], 1, 3)
    record = probe_tags(source, [tmp_path], column="iob", config=FitConfig(epochs=40, batch=8, learning_rate=0.05))
    assert record["probe"] == "ner"
    # York as I-LOC: "New York" is right and the lone York begins a span: all right by conlleval's reading;
    # York as B-LOC: "New" and "York" are two wrong spans and the lone York is right: 1 of 3 found, 1 of 2 wanted
    assert record["scores"]["views"]["0"]["test"] in (100.0, pytest.approx(40.0))
