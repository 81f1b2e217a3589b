"""Word sense probe: reading of sense-tagged texts, and a small probe whose scores are computed by hand."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from rule_vectors import RuleVectors

from elmo.errors import ConfigError, DataError
from elmo.probes.sense_averages import average_senses, transform
from elmo.probes.sense_mix import PairProducts, layer_weight_grid
from elmo.probes.senses import Target, lemma_of, read_raganato, read_semcor, read_wordnet, split_form
from elmo.probes.wsd import probe_wsd

RIVER, MONEY, TILT = "bank%1:17:01::", "bank%1:14:00::", "bank%2:38:00::"
OLD = "old_age%1:28:00::"
WORDNET = f"""{MONEY} 08420278 2 20
{RIVER} 09213434 1 25
{TILT} 02039431 1 2
{OLD} 15145171 1 5
glad%5:00:00:happy:00 00001 2 0
glad%3:00:00:: 00002 1 9
"""
XML = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en"><text id="d0">
<sentence id="d0.s0"><wf lemma="river" pos="NOUN">river</wf>
<instance id="d0.s0.t0" lemma="bank" pos="NOUN">banks</instance>
<wf lemma="``" pos=".">``</wf></sentence>
<sentence id="d0.s1"><wf lemma="money" pos="NOUN">money</wf>
<instance id="d0.s1.t0" lemma="bank" pos="NOUN">Bank</instance></sentence>
<sentence id="d0.s2"><wf lemma="in" pos="ADP">in</wf>
<instance id="d0.s2.t0" lemma="old_age" pos="NOUN">old age</instance>
<instance id="d0.s2.t1" lemma="bank" pos="VERB">bank</instance></sentence>
</text></corpus>
"""
GOLD = f"d0.s0.t0 {RIVER}\nd0.s1.t0 {MONEY} {RIVER}\nd0.s2.t0 {OLD}\nd0.s2.t1 {TILT}\n"
SEMCOR = [
    [["river", "river", "NN"], ["bank", "bank", "NN", [RIVER]]],
    [["money", "money", "NN"], ["bank", "bank", "NN", [MONEY]]],
    [["money", "money", "NN"], ["banks", "bank", "NN", [MONEY]], ["``", None, None]],
    [["took_place", "take_place", "VB", ["take_place%2:30:00::"]]],
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "index.sense").write_text(WORDNET, encoding="utf-8")
    lines = [json.dumps({"id": str(n), "tokens": tokens}) for n, tokens in enumerate(SEMCOR)]
    (tmp_path / "semcor.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "semeval2007").mkdir()
    (tmp_path / "semeval2007" / "semeval2007.data.xml").write_text(XML, encoding="utf-8")
    (tmp_path / "semeval2007" / "semeval2007.gold.key.txt").write_text(GOLD, encoding="utf-8")
    return tmp_path


def test_forms_are_split_into_words_of_running_text():
    assert split_form("took_place") == ["took", "place"]
    assert split_form("old age") == ["old", "age"]
    assert split_form("``") == ['"']
    assert split_form("-LRB-") == ["("]
    assert split_form("_") == ["_"]


def test_lemma_of_a_sense_key():
    assert lemma_of(OLD) == ("old_age", "n")
    assert lemma_of("glad%5:00:00:happy:00") == lemma_of("glad%3:00:00::") == ("glad", "a")
    with pytest.raises(DataError, match="sense key"):
        lemma_of("bank")


def test_wordnet_orders_senses_and_joins_satellites_with_adjectives(folder):
    wordnet = read_wordnet(folder / "index.sense")
    assert wordnet.senses["bank", "n"] == [RIVER, MONEY]
    assert wordnet.first_sense(("glad", "a")) == "glad%3:00:00::"
    assert wordnet.first_sense(("nothing", "n")) is None


def test_evaluation_text_has_spans_and_all_gold_senses(folder):
    texts = list(read_raganato(folder / "semeval2007" / "semeval2007.data.xml"))
    assert texts[0].tokens == ["river", "banks", '"']
    assert texts[2].tokens == ["in", "old", "age", "bank"]
    assert texts[2].targets == [Target(1, 3, ("old_age", "n"), (OLD,)), Target(3, 4, ("bank", "v"), (TILT,))]
    assert texts[1].targets[0].senses == (MONEY, RIVER)


def test_semcor_reads_json_lines_and_raganatos_xml(folder):
    texts = list(read_semcor(folder / "semcor.jsonl"))
    assert texts[3].tokens == ["took", "place"]
    assert texts[3].targets == [Target(0, 2, ("take_place", "v"), ("take_place%2:30:00::",))]
    assert len(list(read_semcor(folder / "semeval2007" / "semeval2007.data.xml", limit=2))) == 2
    (folder / "bad.jsonl").write_text('{"tokens": [[]]}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.jsonl:1"):
        list(read_semcor(folder / "bad.jsonl"))


def test_an_instance_without_gold_sense_is_an_error_with_its_name(folder):
    gold = folder / "semeval2007" / "semeval2007.gold.key.txt"
    gold.write_text(GOLD.splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"d0\.s1\.t0"):
        list(read_raganato(folder / "semeval2007" / "semeval2007.data.xml"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("d0.s0.t0", "the senses of 'd0.s0.t0' are ''"),
        ("d0.s0.t0 river", "the senses of 'd0.s0.t0' are 'river'"),
        (f"d0.s1.t0 {MONEY}", "the instance 'd0.s1.t0' has senses in an earlier line too"),
    ],
)
def test_an_invalid_line_of_gold_senses_is_an_error_with_its_number(folder, line, message):
    gold = folder / "semeval2007" / "semeval2007.gold.key.txt"
    gold.write_text("\n".join([*GOLD.splitlines()[1:], "", line]) + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        list(read_raganato(folder / "semeval2007" / "semeval2007.data.xml"))
    assert caught.value.message.startswith(f"{gold}:5: {message}")


def test_evaluation_sets_without_targets_are_an_error(folder):
    text = '<corpus><sentence><wf lemma="river" pos="NOUN">river</wf></sentence></corpus>'
    (folder / "semeval2007" / "semeval2007.data.xml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="semeval2007 have no target"):
        probe_wsd(RuleVectors(lambda s, i: [[1.0, 0.0]], 1, 2), folder)


def test_a_truncated_compressed_xml_file_is_a_data_error(folder):
    source = folder / "semeval2007"
    gold, text = ((source / f"semeval2007.{name}").read_bytes() for name in ("gold.key.txt", "data.xml"))
    (source / "semeval2007.gold.key.txt.gz").write_bytes(gzip.compress(gold))
    packed = source / "semeval2007.data.xml.gz"
    packed.write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(DataError, match=r"semeval2007\.data\.xml\.gz: "):
        list(read_raganato(packed))


def contextual_vectors():
    """Layer 0 has one vector for all forms of bank; layer 1 depends on the previous word."""
    context = {"river": [1.0, 0.1], "money": [0.1, 1.0]}
    return RuleVectors(lambda s, i: [[1.0, 1.0], context.get(s[i - 1], [0.7, 0.7]) if i else [0.5, 0.6]], 2, 2)


def test_all_scores_of_a_small_probe(folder):
    record = probe_wsd(contextual_vectors(), folder)
    views, counts = record["scores"]["views"], record["counts"]
    # SemCor has the noun bank; old_age and the verb bank get WordNet's first senses, both correct
    assert (counts["targets"], counts["lemma_in_semcor"], counts["senses"]) == (4, 2, 2)
    assert views["1"]["plain"]["ALL"] == 100.0
    assert views["1"]["plain"]["no_back_off"] == 50.0
    # layer 0: all cosines are equal, so SemCor's most frequent sense, money, is chosen: wrong, then correct
    assert views["0"]["plain"]["ALL"] == 75.0
    assert views["0"]["plain"]["noun"] == pytest.approx(66.6667)
    assert views["0"]["plain"]["verb"] == 100.0
    # WordNet's first sense of bank, the river bank, is also one of the two gold senses of the second target
    assert record["scores"]["wordnet_first_sense"]["ALL"] == 100.0
    assert record["scores"]["semcor_most_frequent"]["ALL"] == 75.0
    assert set(views) == {"0", "1", "0-1", "mix", "concat"}
    # layer 0 adds the same value to every cosine; with any weight of layer 1 the correct sense is the nearest
    assert views["mix"]["plain"]["ALL"] == views["concat"]["plain"]["ALL"] == 100.0
    assert views["mix"]["plain"]["layer_weights"] == [0.5, 0.5], "of equally good weights, the most uniform"
    assert views["1"]["tuned"] | {"form": "plain", "prior": 0.0} == views["1"]["tuned"], (
        "of equally good settings, the simplest"
    )


def test_sense_averages_are_means_over_occurrences_and_words(folder):
    def rule(sentence, position):
        return [[float(position), 1.0 if sentence[0] == "money" else 0.0]]

    wordnet = read_wordnet(folder / "index.sense")
    lemmas = {("bank", "n"), ("take_place", "v")}
    averages = average_senses(RuleVectors(rule, 1, 2), lambda: read_semcor(folder / "semcor.jsonl"), lemmas, wordnet)
    assert averages.senses == [MONEY, RIVER, "take_place%2:30:00::"]  # the most frequent first
    assert averages.counts.tolist() == [2.0, 1.0, 1.0]
    np.testing.assert_allclose(averages.means[:, 0], [[1, 1], [1, 0], [0.5, 0]])
    np.testing.assert_allclose(averages.centre, [[3.5 / 4, 0.5]])  # of four targets
    targets = np.array([[1, 0], [1, 1], [1, 1], [0.5, 0]])
    np.testing.assert_allclose(averages.covariance[0], np.cov(targets.T, bias=True), atol=1e-7)
    whitened = transform(averages, "whitened", shrink=0.0)(targets[:, None].astype(np.float32))[:, 0]
    np.testing.assert_allclose(np.cov(whitened.T, bias=True), np.eye(2), atol=1e-4)
    np.testing.assert_allclose(transform(averages, "centred")(targets[:, None])[:, 0].mean(0), 0, atol=1e-7)


def test_a_missing_file_is_an_error_with_its_name(folder):
    (folder / "index.sense").unlink()
    with pytest.raises(ConfigError, match="wordnet"):
        probe_wsd(contextual_vectors(), folder)


def test_mixed_cosines_equal_the_cosines_of_weighted_sums():
    rng = np.random.default_rng(0)
    words, senses = rng.normal(size=(3, 3, 4)), rng.normal(size=(2, 3, 4))
    of_word, of_sense = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0])
    products = PairProducts(words, senses, of_word, of_sense)
    weights = np.array([0.2, 0.5, 0.3])
    for pair, (w, s) in enumerate(zip(of_word, of_sense, strict=True)):
        one, other = weights @ words[w], weights @ senses[s]
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert products.mixed(weights)[pair] == pytest.approx(cosine, abs=1e-6)
        unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (words[w], senses[s])]
        assert products.concatenated()[pair] == pytest.approx(unit[0].ravel() @ unit[1].ravel() / 3, abs=1e-6)


def test_weights_of_the_grid_sum_to_one():
    assert layer_weight_grid(2).tolist()[0] == [0.5, 0.5]
    assert len(layer_weight_grid(3)) == 66  # 12 over 2
    assert len(layer_weight_grid(7)) == 210  # 10 over 6
    np.testing.assert_allclose(layer_weight_grid(4).sum(1), 1.0)
