"""Static word vectors: of the token layer or means over a corpus, and the files that other tools read."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from in_process_cli import run_in_process
from models_with_head import tiny_with_head

import elmo
from elmo.embed.vocabulary_vectors import vocabulary_vectors
from elmo.errors import ConfigError, DataError
from elmo.probes.vector_source import read_static_vectors
from elmo.text.word2vec_format import write_projector, write_word2vec
from elmo.weights.store import save_store

SENTENCES = [["the", "river", "bank"], ["a", "bank"], ["the", "bank", "the"], []]
TEXT = "the river bank\na bank\nthe bank the\n\n"


@pytest.fixture(scope="module")
def embedder() -> elmo.Embedder:
    return elmo.load("tiny-random", device="cpu", tokenizer="whitespace")


def read_binary(path: Path) -> dict[str, np.ndarray]:
    """word2vec's binary format, read independently of the writer."""
    data = path.read_bytes()
    header, data = data.split(b"\n", 1)
    num_words, dim = map(int, header.split())
    vectors = {}
    for _ in range(num_words):
        word, data = data.split(b" ", 1)
        vectors[word.decode()] = np.array(struct.unpack(f"<{dim}f", data[: 4 * dim]), dtype=np.float32)
        assert data[4 * dim : 4 * dim + 1] == b"\n"
        data = data[4 * dim + 1 :]
    assert data == b""
    return vectors


def test_vectors_without_context_are_half_of_layer_0(embedder):
    found = vocabulary_vectors(embedder, ["bank", "日本", "x" * 300, "bank"])
    assert found.words == ["bank", "日本", "x" * 300]
    layer_0 = embedder.layers([[word] for word in found.words])
    for vector, layers in zip(found.vectors, layer_0, strict=True):
        np.testing.assert_allclose(np.tile(vector, 2), layers[0, 0], atol=1e-6)


@pytest.mark.parametrize("layers", [None, "top", 1, "concat"])
def test_vectors_of_a_corpus_are_means_over_occurrences(embedder, layers):
    found = vocabulary_vectors(embedder, None, SENTENCES, layers=layers)
    assert dict(zip(found.words, found.counts.tolist(), strict=True)) == {"the": 3, "bank": 3, "river": 1, "a": 1}
    embedded = embedder.embed(SENTENCES, layers=layers or "average")
    for word, vector in zip(found.words, found.vectors, strict=True):
        occurrences = [
            vectors[position]
            for tokens, vectors in zip(SENTENCES, embedded, strict=True)
            for position, token in enumerate(tokens)
            if token == word
        ]
        np.testing.assert_allclose(vector, np.mean(occurrences, axis=0), atol=1e-6)


def test_words_of_a_corpus_are_limited_by_rank_and_by_count(embedder):
    assert vocabulary_vectors(embedder, None, SENTENCES, max_words=2).words == ["the", "bank"]
    assert set(vocabulary_vectors(embedder, None, SENTENCES, min_count=3).words) == {"the", "bank"}


def test_words_that_the_corpus_does_not_have_are_reported(embedder):
    found = vocabulary_vectors(embedder, ["sea", "bank", "ship"], iter(SENTENCES))
    assert (found.words, found.absent) == (["bank"], ("sea", "ship"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"words": []}, ConfigError, "at least one word"),
        ({"words": "bank"}, ConfigError, "expected a list"),
        ({"words": ["bank"], "layers": "top"}, ConfigError, "Layers need a corpus"),
        ({}, ConfigError, "has no vocabulary"),
        ({"corpus": iter(SENTENCES)}, ConfigError, "can be read only once"),
        ({"corpus": []}, DataError, "The corpus has no words"),
        ({"corpus": SENTENCES, "min_count": 9}, DataError, "none of them 9 times"),
        ({"corpus": SENTENCES, "layers": "all"}, ConfigError, "layers 'all'"),
        ({"corpus": SENTENCES, "words": ["sea"]}, DataError, "None of the 1 words occurs"),
        ({"corpus": SENTENCES, "max_words": 0}, ConfigError, "max_words is 0"),
    ],
)
def test_what_cannot_be_computed_is_an_error(embedder, arguments, error, message):
    with pytest.raises(error, match=message):
        vocabulary_vectors(embedder, **arguments)


def test_both_word2vec_formats_keep_every_bit(tmp_path):
    rng = np.random.default_rng(0)
    vectors = (rng.standard_normal((50, 7)) * 10.0 ** rng.integers(-30, 30, (50, 7))).astype(np.float32)
    words = [f"wörd{number}" for number in range(50)]
    write_word2vec(tmp_path / "words.vec", words, vectors)
    write_word2vec(tmp_path / "words.bin", words, vectors, binary=True)
    text = read_static_vectors(str(tmp_path / "words.vec"))
    np.testing.assert_array_equal(text.matrix, vectors)
    assert list(text.words) == words
    for word, vector, expected in zip(words, read_binary(tmp_path / "words.bin").values(), vectors, strict=True):
        np.testing.assert_array_equal(vector, expected, err_msg=word)


@pytest.mark.parametrize("word", ["New York", "", "tab\tbed", "line\r"])
def test_a_word_that_the_formats_cannot_hold_is_an_error_and_nothing_is_written(word, tmp_path):
    for write, name in ((write_word2vec, "words.vec"), (write_projector, "projector")):
        with pytest.raises(DataError, match="Word 2 is"):
            write(tmp_path / name, ["good", word], np.zeros((2, 3), dtype=np.float32))
    assert list(tmp_path.iterdir()) == []


def test_export_words_writes_the_tables_of_the_projector(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text(TEXT)
    done = run_in_process(
        capsys, "export", "words", str(tmp_path / "out"), "--corpus", str(tmp_path / "corpus.txt"), "--format",
        "projector", "--model", "tiny-random", "--tokenizer", "whitespace", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["words"], facts["absent"], facts["format"]) == (4, 0, "projector")
    metadata = (tmp_path / "out" / "metadata.tsv").read_text().splitlines()
    assert metadata[0] == "word\tcount"
    assert set(metadata[1:]) == {"the\t3", "bank\t3", "river\t1", "a\t1"}
    vectors = np.loadtxt(tmp_path / "out" / "vectors.tsv", delimiter="\t", dtype=np.float32)
    assert vectors.shape == (4, facts["dim"])


def test_labels_without_counts_have_no_header(tmp_path):
    write_projector(tmp_path / "out", ["a", "b"], np.eye(2, dtype=np.float32))
    assert (tmp_path / "out" / "metadata.tsv").read_text() == "a\nb\n"
    assert (tmp_path / "out" / "vectors.tsv").read_text() == "1\t0\n0\t1\n"


def test_export_words_of_a_list_leaves_out_words_that_the_corpus_does_not_have(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text(TEXT)
    (tmp_path / "words.txt").write_text("sea\nbank\n\nbank\nriver\n")
    out = tmp_path / "words.vec"
    arguments = ["--words", str(tmp_path / "words.txt"), "--corpus", str(tmp_path / "corpus.txt"), "--layers", "top"]
    done = run_in_process(capsys, "export", "words", str(out), *arguments, "--model", "tiny-random")
    assert done.returncode == 0, done.stderr
    assert "1 words do not occur in the corpus and were left out: sea" in done.stderr
    assert list(read_static_vectors(str(out)).words) == ["bank", "river"]
    again = run_in_process(capsys, "export", "words", str(out), *arguments, "--model", "tiny-random")
    assert (again.returncode, "exists" in again.stderr) == (1, True)


def test_export_words_without_words_takes_the_vocabulary_of_the_model(tmp_path, capsys):
    model = tmp_path / "model"
    save_store(model, tiny_with_head())
    done = run_in_process(capsys, "export", "words", str(tmp_path / "w.bin"), "--model", str(model), "--max-words", "3")
    assert done.returncode == 0, done.stderr
    vocab = [word for word in elmo.load(model).vocab.words if word not in ("<S>", "</S>", "<UNK>")]
    assert list(read_binary(tmp_path / "w.bin")) == vocab[:3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["words.npy"], "does not say which format"),
        (["words.vec", "--format", "glove"], "--format is 'glove'"),
        (["words.vec", "--words", "w.txt", "--max-words", "3"], "All words of --words are written"),
        (["words.vec", "--min-count", "3"], "are about a corpus"),
        (["words.vec", "--words", "-", "--corpus", "-"], "cannot both be standard input"),
        (["words.vec", "--corpus", "-", "--model", "tiny-random"], "can be read only once"),
        (["words.vec", "--layers", "top", "--words", "w.txt", "--model", "tiny-random"], "Layers need a corpus"),
        (["words.vec", "--model", "tiny-random"], "has no vocabulary"),
    ],
)
def test_export_words_refuses_options_that_do_not_fit(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("w.txt").write_text("bank\n")
    done = run_in_process(capsys, "export", "words", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["w.txt"]


@pytest.mark.parametrize(("text", "message"), [("", "has no words"), ("New York\n", "Word 1 is 'New York'")])
def test_export_words_refuses_a_list_that_cannot_be_written(text, message, tmp_path, capsys):
    (tmp_path / "w.txt").write_text(text)
    done = run_in_process(
        capsys, "export", "words", str(tmp_path / "o.vec"), "--words", str(tmp_path / "w.txt"), "--model", "tiny-random"
    )
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "o.vec").exists()
