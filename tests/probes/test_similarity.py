"""Similarity probe: reading of judgement files, and correlations computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from rule_vectors import RuleVectors

from elmo.errors import DataError
from elmo.probes.judgements import WordInContext, read_judgements
from elmo.probes.similarity import pearson, probe_similarity, ranks, spearman
from elmo.probes.table import table

PLAIN = """The <b>bank</b> of a river.\tA <b>shore</b>.\t8.5
The <b>bank</b> lent.\tA <b>shore</b>.\t1
A <strong>New York</strong> bank.\tthe <b>city</b>\t5
"""
SCWS = "\t".join(["1", "Brazil", "n", "nut", "n", "In <b> Brazil </b> ,", "a <b> nut </b>", "1.1", "1.0", "1.2"])
COSIMLEX = """word1\tword2\tcontext1\tcontext2\tsim1\tsim2
man\tmaid\tThe <strong>man</strong> and the <strong>maid</strong>.\tA <b>maid</b>, no <b>man</b>.\t3\t4
man\tmaid\t<strong>man</strong> <strong>maid</strong>\t<strong>man</strong> <strong>maid</strong>\t1\t2
"""


def write(tmp_path, text):
    path = tmp_path / "pairs.tsv"
    path.write_text(text, encoding="utf-8")
    return path


def test_marked_words_are_found_among_the_tokens(tmp_path):
    pairs = read_judgements(write(tmp_path, PLAIN))
    assert [pair.score for pair in pairs] == [8.5, 1.0, 5.0]
    assert pairs[0].words == (
        WordInContext(("The", "bank", "of", "a", "river", "."), 1, 2),
        WordInContext(("A", "shore", "."), 1, 2),
    )
    assert pairs[2].words[0] == WordInContext(("A", "New", "York", "bank", "."), 1, 3)


def test_published_layouts_are_read(tmp_path):
    pairs = read_judgements(write(tmp_path, f"{SCWS}\n" * 3))
    assert pairs[0].score == 1.1
    assert pairs[0].words[0] == WordInContext(("In", "Brazil", ","), 1, 2)
    pairs = read_judgements(write(tmp_path, COSIMLEX))
    assert [pair.score for pair in pairs] == [3.0, 4.0, 1.0, 2.0], "one pair per context"
    assert pairs[0].words[0] == WordInContext(("The", "man", "and", "the", "maid", "."), 1, 2)
    assert pairs[0].words[1].begin == 4
    assert [word.begin for word in pairs[1].words] == [1, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a <b>b</b>\tc d\t1\n", "0 marked words"),
        ("a <b>b</b> <b>b</b>\t<b>c</b>\t1\n", "2 marked words"),
        ("<b>a</b>\t<b>b</b>\tx\n", "'x'"),
        ("<b>a</b>\t<b>b</b>\tnan\n", "'nan'"),
        ("<b> </b>\t<b>b</b>\t1\n", "contains no word"),
        ("<b>a</b>\t<b>b</b>\n", "2 columns"),
        ("<b>a</b>\t<b>b</b>\t1\n", "1 pairs"),
        ("", "0 pairs"),
        ("context1\tcontext2\tsim1\tsim2\nonly\n", "names 4"),
    ],
)
def test_an_invalid_judgement_is_an_error(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_judgements(write(tmp_path, text))


def test_correlations_by_hand():
    # ranks of 10 20 20 40: 1, 2.5, 2.5, 4
    assert ranks(np.array([10, 20, 20, 40])).tolist() == [1.0, 2.5, 2.5, 4.0]
    # deviations -1 0 1 and -1 1 0: the sum of products is 1, both norms are the square root of 2
    assert pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(0.5)
    # equal ranks for any monotonic relation: 1 - 6 * 0 / (n (n^2 - 1))
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 10.0, 100.0, 1000.0])) == pytest.approx(1.0)
    # ranks 1 2 3 4 and 2 1 4 3: squared differences sum to 4, 1 - 6 * 4 / (4 * 15) = 0.6
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 1.0, 4.0, 3.0])) == pytest.approx(0.6)
    assert pearson(np.ones(3), np.arange(3.0)) == 0.0


def test_a_layer_that_depends_on_the_context_agrees_with_the_judgements(tmp_path):
    """Layer 0 has one vector for all words; in layer 1 only the bank of a river is similar to a shore."""

    def rule(sentence, position):
        word = sentence[position]
        if word in ("New", "York", "city"):
            return [[1.0, 0.0], [1.0, 1.0] if word == "city" else [1.0, 0.1]]
        is_shore = word == "shore" or "river" in sentence
        return [[1.0, 0.0], [0.0, 1.0] if is_shore else [1.0, -0.2]]

    record = probe_similarity(RuleVectors(rule, 2, 2), write(tmp_path, PLAIN))
    views = record["scores"]["views"]
    assert views["0"]["plain"] == {"spearman": 0.0, "pearson": 0.0}, "all cosines are one"
    # layer 1: cosines 1, -0.2 / |(1, -0.2)| = -0.196, 1.1 / |(1, 0.1)| / |(1, 1)| = 0.774; judgements 8.5, 1 and 5
    assert views["1"]["plain"]["spearman"] == 1.0
    cosines = np.array([1.0, -0.2 / np.sqrt(1.04), 1.1 / np.sqrt(1.01 * 2)])
    assert views["1"]["plain"]["pearson"] == pytest.approx(np.corrcoef(cosines, [8.5, 1, 5])[0, 1], abs=1e-4)
    assert record["counts"] == {"pairs": 3}
    assert table(record).splitlines()[0].split() == ["layer", "spearman", "pearson", "centred", "pearson"]
