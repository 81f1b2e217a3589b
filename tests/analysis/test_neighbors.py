"""A word's neighbours in context, streamed."""

from __future__ import annotations

import numpy as np
import pytest
from golden import golden_embedder
from inside import elmo_inside

from elmo.analysis.neighbors import neighbors
from elmo.analysis.similarity import occurrence_similarity
from elmo.errors import ConfigError

CORPUS = [["The", "cat", "sat", "."], [], ["A", "dog", "and", "a", "cat"], ["Nothing", "here"]]


def test_neighbours_are_the_nearest_by_cosine() -> None:
    embedder = golden_embedder("allennlp")
    found = neighbors(embedder, ["My", "cat", "slept"], 1, CORPUS, layers=1, k=4)
    query = embedder.embed([["My", "cat", "slept"]], layers=1)[0][1]
    every = []
    for line, tokens in enumerate(CORPUS):
        for place, vector in enumerate(embedder.embed([tokens], layers=1)[0]):
            every.append((vector @ query / np.linalg.norm(vector) / np.linalg.norm(query), line, place))
    every.sort(reverse=True)
    assert [(n.line, n.position) for n in found] == [(line, place) for _, line, place in every[:4]]
    np.testing.assert_allclose([n.score for n in found], [score for score, _, _ in every[:4]], atol=1e-5)


def test_the_same_word_alone_can_be_asked_for_and_the_query_is_no_answer() -> None:
    embedder = golden_embedder("allennlp")
    found = neighbors(embedder, CORPUS[0], 1, CORPUS, k=10, word="cat")
    assert [(n.word, n.line) for n in found] == [("cat", 2)]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match="one vector a word"):
        neighbors(golden_embedder("allennlp"), CORPUS[0], 1, CORPUS, layers="all")
    with pytest.raises(ConfigError, match="carry"):
        neighbors(golden_embedder("allennlp", state="carry"), CORPUS[0], 1, CORPUS)
    with pytest.raises(ConfigError, match="position 9"):
        neighbors(golden_embedder("allennlp"), CORPUS[0], 9, CORPUS)


def test_occurrences_of_a_word_are_alike_without_context() -> None:
    embedder = golden_embedder("allennlp")
    np.testing.assert_allclose(occurrence_similarity(embedder, CORPUS, "cat", 0), np.ones((2, 2)), atol=1e-5)
    assert occurrence_similarity(embedder, CORPUS, "cat", "top")[0, 1] < 0.999


def test_the_command_line_finds_and_refuses(tmp_path, capsys) -> None:
    (tmp_path / "c.txt").write_text("The cat sat .\nA dog and a cat\n")
    words = ["similar", "My cat slept .", "cat", str(tmp_path / "c.txt"), "--model", "tiny-random"]
    done = elmo_inside(capsys, *words, "-k", "2")
    assert done.returncode == 0
    assert done.stdout.count("[") == 2
    assert elmo_inside(capsys, *words, "--layers", "all").returncode == 2
    wrong = elmo_inside(capsys, "similar", "My cat .", "horse", str(tmp_path / "c.txt"), "--model", "tiny-random")
    assert wrong.returncode == 1
    demo = elmo_inside(capsys, "demo", "--model", "tiny-random", "--json")
    assert '"trained": false' in demo.stdout
    score = elmo_inside(capsys, "score", "A cat .", "--model", "tiny-random")
    assert score.returncode == 1
    assert "no softmax" in score.stderr
