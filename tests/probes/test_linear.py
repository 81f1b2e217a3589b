"""Linear probes: a classifier predicts a label if and only if its layer contains the information."""

from __future__ import annotations

import numpy as np
import pytest
from rule_vectors import RuleVectors

from elmo.probes.linear import FitConfig, fit, view_names
from elmo.probes.tagging import probe_tags

NUM_LABELS = 4


def random_data(count, seed):
    """Layer 0 is noise; layer 1 encodes each label in one dimension; dimensions differ in mean and scale."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_LABELS, count)
    layers = rng.normal(size=(count, 2, 6))
    layers[np.arange(count), 1, labels] += 4.0
    return (layers * [1, 100, 0.01, 1, 1, 1] + [0, 0, 0, 50, 0, 0]).astype(np.float16), labels


def fit_random_data(**config):
    train, dev, test = random_data(600, 0), random_data(200, 1), random_data(200, 2)

    def score(predictions):
        return float((predictions == dev[1]).mean())

    views = fit(train, dev[0], test[0], NUM_LABELS, score, FitConfig(batch=32, **config))
    return views, {fitted.view: float((fitted.predictions == test[1]).mean()) for fitted in views}


def test_views_of_one_layer_and_of_more():
    assert view_names(1) == ["0"]
    assert view_names(3) == ["0", "1", "2", "mix", "concat"]


def test_only_the_layer_that_encodes_the_label_predicts_it():
    views, accuracy = fit_random_data(epochs=8)
    assert accuracy["1"] > 0.93
    assert accuracy["concat"] > 0.9
    assert accuracy["0"] < 0.45
    mix = next(fitted for fitted in views if fitted.view == "mix")
    assert mix.layer_weights[1] > 0.55, "it starts at 0.5"
    assert sum(mix.layer_weights) == pytest.approx(1.0, abs=1e-3)


def test_the_same_seed_gives_the_same_predictions():
    first_run, _ = fit_random_data(epochs=2, seed=5)
    second_run, _ = fit_random_data(epochs=2, seed=5)
    for first, second in zip(first_run, second_run, strict=True):
        np.testing.assert_array_equal(first.predictions, second.predictions)


def test_training_stops_when_no_view_improves():
    train, dev = random_data(200, 0), random_data(50, 1)
    scored = []

    def score(predictions):
        scored.append(predictions)
        return 1.0

    views = fit(train, dev[0], dev[0], NUM_LABELS, score, FitConfig(epochs=50, patience=2))
    assert {fitted.epoch for fitted in views} == {1}
    assert len(scored) == 3 * len(views), "epoch 1 was the best, 2 and 3 did not improve"


def write_corpus(folder, lines):
    for split in ("train", "dev", "test"):
        (folder / f"{split}.conllu").write_text(lines, encoding="utf-8")


def test_a_record_has_scores_baseline_and_data(tmp_path):
    # the tag of the second word depends on the first word, not on the word itself
    sentences = []
    for first, tag in (("red", "A"), ("blue", "B")):
        sentences.append(f"1\t{first}\t_\tX\t_\n2\tthing\t_\t{tag}\t_\n")
    write_corpus(tmp_path, "\n".join(sentences * 20))
    previous = {"red": [1, 0], "blue": [0, 1]}
    source = RuleVectors(lambda s, i: [[i, i], previous[s[i - 1]] if i else [0.5, 0.5]], 2, 2)
    config = FitConfig(epochs=30, batch=8, learning_rate=0.05)
    record = probe_tags(source, [tmp_path], column="upos", config=config)
    views = record["scores"]["views"]
    assert views["1"]["test"] == 100.0
    assert views["0"]["test"] == 75.0  # X and one of A and B
    assert record["scores"]["most_frequent_tag"] == {"dev": 75.0, "test": 75.0}
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
    # the vectors do not depend on the position: York always gets the same tag, which is wrong in one of the sentences
    source = RuleVectors(lambda s, i: [[float(s[i] == "in"), float(s[i] == "New"), float(s[i] == "York")]], 1, 3)
    record = probe_tags(source, [tmp_path], column="iob", config=FitConfig(epochs=40, batch=8, learning_rate=0.05))
    assert record["probe"] == "ner"
    # York as I-LOC: "New York" is correct and the single York begins a span by conlleval's rules: all correct;
    # York as B-LOC: "New" and "York" are two wrong spans, the single York is correct: precision 1/3, recall 1/2
    assert record["scores"]["views"]["0"]["test"] in (100.0, pytest.approx(40.0))
