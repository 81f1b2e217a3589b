"""Nearest neighbours of a word in context and without, streamed and from an index, and `elmo similar`."""

from __future__ import annotations

import json
from unicodedata import normalize

import numpy as np
import pytest
from golden import golden_embedder
from in_process_cli import run_in_process

from elmo.embed.corpus_index import index_corpus
from elmo.embed.neighbors import Query, find_neighbors, static_neighbors
from elmo.errors import ConfigError, DataError

CORPUS = [("The", "cat", "sat", "."), (), ("A", "dog", "and", "a", "cat"), ("Nothing", "here")]


def test_neighbours_are_the_nearest_by_cosine() -> None:
    embedder = golden_embedder("allennlp")
    query = Query(("My", "cat", "slept"), 1)
    (neighbors,) = find_neighbors(embedder, [query], CORPUS, layers=1, k=4).neighbors
    query_vector = embedder.embed([["My", "cat", "slept"]], layers=1)[0][1]
    every = []
    for line, tokens in enumerate(CORPUS):
        for position, vector in enumerate(embedder.embed([list(tokens)], layers=1)[0]):
            cosine = vector @ query_vector / np.linalg.norm(vector) / np.linalg.norm(query_vector)
            every.append((cosine, line, position))
    every.sort(reverse=True)
    assert [(n.line, n.position) for n in neighbors] == [(line, position) for _, line, position in every[:4]]
    np.testing.assert_allclose([n.score for n in neighbors], [score for score, _, _ in every[:4]], atol=1e-5)


def test_the_search_can_be_limited_to_a_word_and_leaves_the_query_out() -> None:
    embedder = golden_embedder("allennlp")
    (neighbors,) = find_neighbors(embedder, [Query(CORPUS[0], 1)], CORPUS, k=10, word="cat").neighbors
    assert [(n.word, n.line) for n in neighbors] == [("cat", 2)]


def test_the_same_word_is_found_regardless_of_case_and_unicode_form(tmp_path) -> None:
    """As `same_word` of the server does; the search was for the same spelling."""
    embedder = golden_embedder("allennlp")
    corpus = ["PLAY it .", "Play on .", "A playing dog .", "Die STRASSE .", normalize("NFD", "Eine BRÜCKE .")]
    expected = {"play": {"PLAY", "Play"}, "Straße": {"STRASSE"}, "Brücke": {normalize("NFD", "BRÜCKE")}}
    for word, forms in expected.items():
        for index in (None, tmp_path):
            found = embedder.similar(f"Ein {word} .", word, corpus, same_word=True, index=index)
            assert {neighbor.word for neighbor in found.nearest} == forms


def test_what_cannot_be_compared_is_an_error() -> None:
    query = Query(CORPUS[0], 1)
    with pytest.raises(ConfigError, match="one vector per word"):
        find_neighbors(golden_embedder("allennlp"), [query], CORPUS, layers="all")
    with pytest.raises(ConfigError, match="carry"):
        find_neighbors(golden_embedder("allennlp", state="carry"), [query], CORPUS)
    with pytest.raises(ConfigError, match="position 9"):
        Query(CORPUS[0], 9)


def test_occurrences_of_a_word_are_equal_without_context_only() -> None:
    embedder = golden_embedder("allennlp")
    queries = [Query(CORPUS[0], 1), Query(CORPUS[2], 4)]
    np.testing.assert_allclose(find_neighbors(embedder, queries, CORPUS, layers=0).cosines, np.ones((2, 2)), atol=1e-5)
    assert find_neighbors(embedder, queries, CORPUS, layers="top").cosines[0, 1] < 0.999


def test_the_command_shows_neighbours_and_reports_wrong_arguments(tmp_path, capsys) -> None:
    (tmp_path / "c.txt").write_text("The cat sat .\nA dog and a cat\n")
    words = ["similar", "My cat slept .", "cat", str(tmp_path / "c.txt"), "--model", "tiny-random"]
    done = run_in_process(capsys, *words, "-k", "2")
    assert done.returncode == 0
    assert done.stdout.count("[") == 3, "the query and two neighbours"
    assert "without context (the model's token layer): " in done.stdout
    (tmp_path / "same.txt").write_text("My cat slept .\n")
    alone = run_in_process(capsys, *words[:3], str(tmp_path / "same.txt"), "--same-word", "--model", "tiny-random")
    assert "no other use of 'cat' in the corpus (sentences: 1)" in alone.stdout
    assert run_in_process(capsys, *words, "--layers", "all").returncode == 2
    wrong = run_in_process(capsys, "similar", "My cat .", "horse", str(tmp_path / "c.txt"), "--model", "tiny-random")
    assert wrong.returncode == 1
    demo = run_in_process(capsys, "demo", "--model", "tiny-random", "--json")
    assert '"trained": false' in demo.stdout
    score = run_in_process(capsys, "score", "A cat .", "--model", "tiny-random")
    assert score.returncode == 1
    assert "no softmax" in score.stderr


def test_an_index_gives_the_neighbours_of_the_stream_and_is_written_once(tmp_path) -> None:
    embedder = golden_embedder("allennlp")
    queries = [Query(("My", "cat", "slept"), 1), Query(("A", "dog", "."), 1)]
    streamed = find_neighbors(embedder, queries, CORPUS, k=3)
    indexed = find_neighbors(embedder, queries, CORPUS, k=3, index=tmp_path)
    for one, other in zip(streamed.neighbors, indexed.neighbors, strict=True):
        assert [(n.line, n.position) for n in one] == [(n.line, n.position) for n in other]
        np.testing.assert_allclose([n.score for n in one], [n.score for n in other], atol=2e-3)  # float16
    assert (indexed.num_sentences, indexed.num_words) == (4, 11)
    index = index_corpus(embedder, CORPUS, tmp_path)
    assert list(tmp_path.iterdir()) == [index.path], "the same file was opened"
    assert index.vectors.shape == (11, embedder.dim)
    index_corpus(embedder, CORPUS, tmp_path, layers=1)
    index_corpus(embedder, CORPUS[:1], tmp_path)
    assert len(list(tmp_path.iterdir())) == 3, "another layer or text has its own file"


def test_queries_are_compared_with_each_other_and_an_empty_corpus_is_an_error() -> None:
    embedder = golden_embedder("allennlp")
    query = Query(("My", "cat", "slept"), 1)
    result = find_neighbors(embedder, [query, query], [("A", "cat", "."), ("The", "cat", ".")], k=5, word="cat")
    np.testing.assert_allclose(result.cosines, np.ones((2, 2)), atol=1e-5)
    assert [n.tokens[0] for n in result.neighbors[0]] == [n.tokens[0] for n in result.neighbors[1]]
    assert {one.word for one in result.without_context} == {"A", "The", "."}
    with pytest.raises(DataError, match="no words"):
        find_neighbors(embedder, [query], [()])


def test_static_neighbours_are_the_nearest_other_words() -> None:
    # cosines with (1, 0): 1, 0.6, 0 and -1, whatever the lengths; a zero vector has none
    vectors = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [-5.0, 0.0], [0.0, 0.0]])
    neighbors = static_neighbors("play", ["play", "game", "bank", "rest", "zero"], vectors, vectors[0], k=2)
    assert [(one.word, round(one.score, 6)) for one in neighbors] == [("game", 0.6), ("bank", 0.0)]


def test_the_record_holds_query_settings_and_both_kinds_of_neighbours(tmp_path, capsys) -> None:
    (tmp_path / "c.txt").write_text("The cat sat. A dog and a cat came.\n")
    (tmp_path / "v.txt").write_text("cat 1 0\ndog 0.6 0.8\nsat 0 1\n")
    words = ["similar", "My cat slept .", "cat", str(tmp_path / "c.txt"), "--model", "tiny-random", "-k", "2"]
    more = [
        "--beside",
        "No cat .",
        "--paragraphs",
        "--index",
        str(tmp_path / "i"),
        "--vectors",
        str(tmp_path / "v.txt"),
    ]
    done = run_in_process(capsys, *words, *more, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["kind"] == "neighbours"
    assert record["command"].startswith("elmo similar 'My cat slept .' cat c.txt ")
    assert str(tmp_path) not in record["command"]
    assert "--beside 'No cat .' --paragraphs" in record["command"]
    assert record["settings"]["layers"] == "top"
    assert [query["position"] for query in record["queries"]] == [1, 1]
    assert [len(query["neighbours"]) for query in record["queries"]] == [2, 2]
    assert (record["corpus"]["sentences"], record["corpus"]["words"]) == (2, 11)
    assert record["without_context"][1]["words"] == [{"score": pytest.approx(0.6), "word": "dog"},
                                                     {"score": 0.0, "word": "sat"}]  # fmt: skip
    assert len(list((tmp_path / "i").iterdir())) == 1
    wrong = run_in_process(capsys, *words, "--beside", "A dog .")
    assert (wrong.returncode, "'cat' is not among" in wrong.stderr) == (1, True)
    assert run_in_process(capsys, *words, "--index", str(tmp_path / "c.txt")).returncode == 2


def test_similar_finds_what_the_search_finds(tmp_path) -> None:
    embedder = golden_embedder("allennlp")
    queries = [Query(("My", "cat", "slept"), 1), Query(("The", "cat", "ran"), 1)]
    expected = find_neighbors(embedder, queries, CORPUS, layers=1, k=3, word="cat")
    options = {"beside": [["The", "cat", "ran"]], "k": 3, "layers": 1, "same_word": True}
    for word in ("cat", 1):
        result = embedder.similar(["My", "cat", "slept"], word, CORPUS, **options)
        assert (result.queries, result.neighbors) == (expected.queries, expected.neighbors)
        assert result.nearest == expected.neighbors[0]
    (tmp_path / "corpus.txt").write_text("\n".join(" ".join(tokens) for tokens in CORPUS) + "\n")
    for corpus in (str(tmp_path / "corpus.txt"), tmp_path / "corpus.txt"):
        indexed = embedder.similar(["My", "cat", "slept"], "cat", corpus, index=tmp_path / "index", **options)
        assert [(n.line, n.position) for n in indexed.nearest] == [(n.line, n.position) for n in expected.nearest]


def test_similar_reads_raw_text_and_splits_paragraphs() -> None:
    embedder = golden_embedder("allennlp")
    result = embedder.similar("My cat slept.", "cat", ["The cat sat. A dog ran.", ""], split=True, same_word=True)
    assert [neighbor.tokens for neighbor in result.nearest] == [("The", "cat", "sat", ".")]
    assert (result.num_sentences, result.num_words) == (2, 8)
    whole = embedder.similar("My cat slept.", "cat", ["The cat sat. A dog ran."], same_word=True)
    assert len(whole.nearest[0].tokens) == 8


def test_accents_as_separate_characters_name_the_same_word_and_give_a_warning(caplog) -> None:
    """The word was "not among" the tokens of a sentence that shows it, and a corpus had "no other use" of it."""
    embedder = golden_embedder("allennlp")
    joined, corpus = "Die Brücke ist alt .", ["Eine Brücke .", "Der Fluss ."]
    apart, corpus_apart = (normalize("NFD", text) for text in (joined, corpus[0]))
    for word in ("Brücke", normalize("NFD", "Brücke")):
        for sentence in (joined, apart):
            assert embedder.similar(sentence, word, corpus).queries[0].position == 1
    caplog.clear()
    embedder.similar(joined, "Brücke", corpus)
    assert not caplog.records
    for sentence, texts, where in ((joined, [corpus_apart], "in the corpus, "), (apart, corpus, "in the query, ")):
        caplog.clear()
        embedder.similar(sentence, "Brücke", texts)
        (record,) = caplog.records
        assert record.message.startswith(f"{where}accents are separate characters in words such as")


def test_similar_names_what_is_wrong(tmp_path) -> None:
    embedder = golden_embedder("allennlp")
    with pytest.raises(DataError, match="'horse' is not among"):
        embedder.similar("My cat slept .", "horse", CORPUS)
    with pytest.raises(DataError, match="'cat' is not among"):
        embedder.similar("My cat slept .", "cat", CORPUS, beside=["A dog ."])
    with pytest.raises(ConfigError, match="words 0 to 3"):
        embedder.similar("My cat slept .", 4, CORPUS)
    with pytest.raises(DataError, match=r"none\.txt"):
        embedder.similar("My cat slept .", 1, tmp_path / "none.txt")
    with pytest.raises(DataError, match="no words"):
        embedder.similar("My cat slept .", 1, [])
    with pytest.raises(ConfigError, match="k is 0"):
        embedder.similar("My cat slept .", 1, CORPUS, k=0)


def test_the_command_takes_a_position(tmp_path, capsys) -> None:
    (tmp_path / "c.txt").write_text("The cat sat .\nA dog and a cat\n")
    words = [str(tmp_path / "c.txt"), "--model", "tiny-random", "-k", "1"]
    assert "[cat]" in run_in_process(capsys, "similar", "My cat slept .", "1", *words).stdout
    assert "[3]" in run_in_process(capsys, "similar", "My 3 cats slept .", "3", *words).stdout  # a word of the sentence
    assert run_in_process(capsys, "similar", "My cat slept .", "9", *words).returncode == 2
