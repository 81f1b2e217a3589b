"""Exported word vectors in gensim: equal numbers in both formats, and KeyedVectors without a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from in_process_cli import run_in_process

import elmo
from elmo.embed.vocabulary_vectors import vocabulary_vectors
from elmo.integrations.gensim import keyed_vectors

EXAMPLE = Path(__file__).parents[2] / "examples" / "gensim_words.py"
CORPUS = "The river bank .\nA naïve bank , 日本 !\nThe bank the .\n"


@pytest.mark.parametrize("name", ["words.vec", "words.bin"])
@pytest.mark.parametrize("with_corpus", [False, True])
def test_gensim_reads_the_exported_numbers(name, with_corpus, tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text(CORPUS, encoding="utf-8")
    (tmp_path / "list.txt").write_text("bank\nnaïve\n日本\n\u00a0nbsp\u2028line\n", encoding="utf-8")
    words = ["--corpus", str(tmp_path / "corpus.txt")] if with_corpus else ["--words", str(tmp_path / "list.txt")]
    done = run_in_process(capsys, "export", "words", str(tmp_path / name), *words, "--model", "tiny-random")
    assert done.returncode == 0, done.stderr
    keyed = KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=name.endswith(".bin"))
    embedder = elmo.load("tiny-random", device="cpu")
    corpus = tmp_path / "corpus.txt" if with_corpus else None
    expected = vocabulary_vectors(embedder, None if with_corpus else keyed.index_to_key, corpus)
    assert keyed.index_to_key == expected.words
    assert len(expected.words) >= 4
    np.testing.assert_array_equal(keyed.vectors, expected.vectors)


def test_keyed_vectors_are_those_of_the_corpus_with_counts():
    embedder = elmo.load("tiny-random", device="cpu")
    keyed = keyed_vectors(embedder, corpus=CORPUS.splitlines(), layers="top")
    expected = vocabulary_vectors(embedder, corpus=CORPUS.splitlines(), layers="top")
    np.testing.assert_array_equal(keyed.vectors, expected.vectors)
    assert keyed.get_vecattr("bank", "count") == 3
    assert keyed.most_similar("bank", topn=1)[0][0] in expected.words


def test_the_example_finds_words_of_the_same_topic():
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lawyer, garlic = done.stdout.splitlines()[-2:]
    assert {"judge", "court", "thief"} & {pair.split()[0] for pair in lawyer.removeprefix("lawyer: ").split(", ")}
    assert {"onions", "butter", "soup"} & {pair.split()[0] for pair in garlic.removeprefix("garlic: ").split(", ")}
