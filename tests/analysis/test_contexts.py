"""Words in context: the sentences, separation of senses on worked examples, word maps, and `elmo demo`."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from golden import golden_embedder
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

from elmo.analysis.contexts import languages, read_contexts, sentence_layers, separation, word_vectors
from elmo.charts.word_map import as_text, project_to_plane, word_map
from elmo.text.tokenizer_function import make_tokenizer
from elmo.weights.store import save_store


@pytest.mark.parametrize(("language", "num_words"), [("de", 12), ("en", 6), ("fr", 12)])
def test_every_word_has_two_senses_of_four_sentences_with_it_once(language, num_words):
    contexts = read_contexts(language)
    tokenize = make_tokenizer("default" if language == "en" else "unicode")
    assert len(contexts.words) == num_words
    for word, senses in contexts.words.items():
        assert [len(sentences) for sentences in senses.values()] == [4, 4]
        for sentence in (s for sentences in senses.values() for s in sentences):
            assert sentence.split().count(word) == 1, sentence
            assert sentence.endswith(" .")
            assert [token.text for token in tokenize(sentence)] == sentence.split()
    assert len({use.tokens for use in contexts.uses()}) == 8 * num_words
    assert contexts.shown in contexts.words
    assert " ".join(contexts.sentence).endswith(" .")


def test_language_without_sentences_is_refused(capsys):
    assert languages() == ["de", "en", "fr"]
    done = run_in_process(capsys, "demo", "--language", "tlh", "--model", "tiny-random")
    assert done.returncode == 2
    assert "Known: de, en, fr." in done.stderr


def test_demo_in_another_language(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_in_process(capsys, "demo", "--model", "tiny-random", "--language", "fr", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "different contexts: 'avocat'" in done.stdout
    assert "\n   côte " in done.stdout


def test_vectors_are_the_used_words():
    embedder = golden_embedder("allennlp")
    uses = read_contexts().uses(["bank", "cell"])
    vectors = word_vectors(uses, sentence_layers(embedder, uses))
    assert vectors.shape == (3, 16, embedder.dim)
    expected = embedder.layers([list(uses[5].tokens)])[0][:, uses[5].position]
    np.testing.assert_allclose(vectors[:, 5], expected, atol=1e-5)
    np.testing.assert_allclose(vectors[0, :8], np.repeat(vectors[0, :1], 8, axis=0), atol=1e-6)  # no context


def test_separation_of_a_worked_example():
    vectors = np.eye(4)[[0, 0, 1, 1]] + np.eye(4)[[2, 3, 2, 3]]  # one axis per sense, and two axes across senses
    result = separation(vectors, ["a", "a", "b", "b"])
    assert result.within == pytest.approx(0.5)  # (1, 0, 1, 0) and (1, 0, 0, 1): 1 / 2
    assert result.between == pytest.approx(0.25)  # half of the pairs share the other axis, half share nothing
    assert result.nearest == pytest.approx(0.5)  # the two nearest are equally near, one of each sense
    assert separation(np.eye(2)[[0, 0, 1, 1]], ["a", "a", "b", "b"]).nearest == 1.0
    assert separation(np.ones((4, 3)), ["a", "a", "b", "b"]).nearest == pytest.approx(1 / 3)  # chance


def test_the_plane_keeps_distances_of_flat_points_and_equal_points():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(9, 2))
    points = project_to_plane(flat @ np.linalg.qr(rng.normal(size=(7, 7)))[0][:2] + 3.0)

    def distances(p):
        return np.linalg.norm(p[:, None] - p[None], axis=-1)

    ratio = distances(points)[0, 1] / distances(flat)[0, 1]
    np.testing.assert_allclose(distances(points), ratio * distances(flat), atol=1e-9)
    assert np.abs(points).max() == pytest.approx(1.0)
    assert (project_to_plane(np.full((5, 6), 2.5)) == 0).all()
    assert project_to_plane(np.ones((1, 4))).shape == (1, 2)


def test_pictures_contain_every_point():
    vectors = np.random.default_rng(1).normal(size=(3, 4, 6))
    words = {"a<b": (vectors, ["x", "x", "y", "y"]), "c": (vectors, ["p", "p", "q", "q"])}
    root = ET.fromstring(word_map("map", words, title="T & t"))
    names = [element.tag.split("}")[1] for element in root.iter()]
    assert names.count("circle") == 2 * 3 * 2
    assert names.count("rect") == 2 * 3 * (1 + 2)
    lines = as_text(project_to_plane(vectors[0]), ["x1", "x2", "y3", "y4"], width=20, height=5)
    assert {len(line) for line in lines} == {22}
    text = "".join(lines)
    assert all(text.count(label) == 1 for label in ("x1", "x2", "y3", "y4"))
    on_one_spot = "".join(as_text(np.zeros((4, 2)), ["x1", "x2", "y3", "y4"], width=20, height=5))
    assert all(label in on_one_spot for label in ("x1", "x2", "y3", "y4"))


def test_demo_reports_an_untrained_model(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_in_process(capsys, "demo", "--model", "tiny-random", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "untrained" in done.stdout
    assert "no softmax" in done.stdout
    ET.parse(tmp_path / "elmo-demo.svg")


def test_demo_with_a_language_model_as_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_store(tmp_path / "m", tiny_with_head(), storage="int8")
    done = run_in_process(capsys, "demo", "--model", str(tmp_path / "m"), "--json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["kind"], facts["command"]) == ("demo", f"elmo demo --model {tmp_path / 'm'} --json")
    assert set(facts["senses"]) == set(read_contexts().words)
    assert facts["senses"]["bank"][0]["within"] == pytest.approx(1.0, abs=1e-3)
    assert [len(query["layers"]) for query in facts["neighbours"]] == [3, 3]
    first = facts["neighbours"][0]["layers"]
    assert all("[bank]" not in one["shown"] for one in first[0])
    assert all(one["sentence"] != 0 for layer in first for one in layer)  # not the sentence itself
    ordered, scrambled = (row["sentence"].split() for row in facts["language_model"]["scores"])
    assert sorted(ordered) == sorted(scrambled)
    assert ordered != scrambled
    assert len(facts["language_model"]["substitutes"]) == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]  # no picture without --out
    shown = run_in_process(capsys, "demo", "--model", str(tmp_path / "m"), "--out", "p.svg", "--device", "cpu")
    assert "scrambled" in shown.stdout
    assert "untrained" in shown.stdout  # tiny_with_head() is tiny-random with a softmax
