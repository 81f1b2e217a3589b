"""The coref model: overfits a few documents; spans, pruning, loss and links equal brute force or a hand computation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import COREF, learn, small_run

from elmo.tasks.coref import data as coref
from elmo.tasks.coref.model import Links, detection_loss, marginal_loss, resolve
from elmo.tasks.coref.spans import all_spans, antecedents, clusters_of, distance_bucket, prune
from elmo.tasks.coref.task import TASK
from elmo.text.tokenize import tokenizer

CPU = torch.device("cpu")


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_it_overfits_a_few_documents(tmp_path, mode):
    settings = {"max_width": 1, "spans_a_token": 1.0}  # every token is a span after pruning
    run, splits = small_run(tmp_path, "coref", elmo={"mode": mode, "dropout": 0.0}, model=settings)
    single_word_mentions = [
        replace(example, clusters=tuple(tuple((b, b) for _, b in cluster) for cluster in example.clusters))
        for example in splits.train
    ]
    assert learn(run, single_word_mentions, updates=80, lr=0.02)["conll_f1"] == pytest.approx(100)


def test_mentions_of_several_words_are_learned_with_pruning(tmp_path):
    run, splits = small_run(tmp_path, "coref", model={"spans_a_token": 1.0})
    before = learn(run, splits.train, updates=1)
    assert learn(run, splits.train, updates=80)["mention_f1"] > max(50, before["mention_f1"])


def test_scores_do_not_depend_on_padding_and_neighbours(tmp_path):
    run, splits = small_run(tmp_path, "coref")
    run.model.eval()
    together = run.model.links(TASK.collate(splits.train, run.maker))
    for links, example in zip(together, splits.train, strict=True):
        (alone,) = run.model.links(TASK.collate([example], run.maker))
        assert torch.equal(links.first, alone.first)
        assert torch.equal(links.last, alone.last)
        torch.testing.assert_close(links.scores, alone.scores, rtol=1e-4, atol=1e-5)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 6))
def test_all_spans_are_inside_a_sentence(lengths, max_width):
    first, last = all_spans(lengths, max_width, CPU)
    expected, start = [], 0
    for length in lengths:
        tokens = range(start, start + length)
        expected += [(a, b) for a in tokens for b in tokens if a <= b < a + max_width]
        start += length
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == expected


def crosses(one, other):
    (a, b), (c, d) = sorted([one, other])
    return a < c <= b < d


@given(st.data())
def test_pruning_selects_the_best_spans_that_do_not_cross(data):
    spans = [(a, b) for a in range(6) for b in range(a, min(6, a + 4))]
    scores = data.draw(st.permutations([float(n) for n in range(len(spans))]))
    count = data.draw(st.integers(1, len(spans)))
    expected = []
    for index in sorted(range(len(spans)), key=lambda index: -scores[index]):
        if len(expected) < count and not any(crosses(spans[index], spans[other]) for other in expected):
            expected.append(index)
    first, last = zip(*spans, strict=True)
    assert prune(first, last, scores, count) == sorted(expected)


def test_antecedents_are_the_nearest_earlier_spans():
    indices, exists = antecedents(4, 2, CPU)
    existing = [
        [index for index, is_there in zip(*row, strict=True) if is_there]
        for row in zip(indices.tolist(), exists.tolist(), strict=True)
    ]
    assert existing == [[], [0], [1, 0], [2, 1]]


def test_distances_have_the_buckets_of_the_paper():
    distances = torch.tensor([1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 900])
    assert distance_bucket(distances).tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]


def links_of(scores, spans):
    earlier, exists = antecedents(len(spans), len(spans), CPU)
    pair_scores = torch.tensor(scores).masked_fill(~exists, -1e30)
    first, last = torch.tensor(spans).T
    link_scores = torch.cat([torch.zeros(len(spans), 1), pair_scores], dim=1)
    return Links(first, last, earlier, link_scores, torch.zeros(len(spans)), None)


def test_the_loss_by_hand():
    # spans 0, 1 and 2; 0 and 2 corefer. Antecedents are nearest first, scores are logs of integers
    log = math.log
    links = links_of([[0.0] * 3, [log(3), 0.0, 0.0], [log(2), log(5), 0.0]], [(0, 0), (2, 3), (5, 5)])
    gold = torch.tensor([[0, 0, 1], [5, 5, 1]])
    # span 0: "none" is certain. span 1: "none" is correct, 1 of 1 + 3. span 2: the second is correct, 5 of 1 + 2 + 5
    assert marginal_loss(links, gold).item() == pytest.approx((0 - log(1 / 4) - log(5 / 8)) / 3, rel=1e-5)
    assert marginal_loss(links, gold[:0]).item() == pytest.approx((0 - log(1 / 4) - log(1 / 8)) / 3, rel=1e-5)


def test_links_form_clusters():
    assert clusters_of([-1, 0, -1, 1, 2, -1]) == [[0, 1, 3], [2, 4]]
    links = links_of([[0.0] * 3, [-1.0, 0.0, 0.0], [-1.0, 2.0, 0.0]], [(0, 0), (2, 3), (5, 5)])
    assert resolve(links) == [[(0, 0), (5, 5)]]


def test_scores_depend_on_speakers_and_genre_which_may_be_unknown(tmp_path):
    run, splits = small_run(tmp_path, "coref", model={"spans_a_token": 3.0})
    run.model.eval()
    talk = splits.train[1]
    others = [replace(talk, speakers=("x",) * 11), replace(talk, speakers=()), replace(talk, genre="unknown genre")]
    scores = [run.model.links(TASK.collate([example], run.maker))[0].scores for example in (talk, *others)]
    assert not torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[1], scores[2])
    assert torch.isfinite(scores[3]).all()


def test_long_documents_are_split_for_training():
    document = COREF[0]
    chunks = TASK.training_examples([document], TASK.model_config(max_sentences=2))
    assert [len(chunk.sentences) for chunk in chunks] == [2, 1]
    assert chunks[0].clusters == (((0, 0), (8, 8)), ((2, 3), (5, 6)))
    assert chunks[1].clusters == ()  # each of its mentions is alone in its cluster


def test_raw_text_is_split_into_sentences_and_rendered(tmp_path):
    run, _ = small_run(tmp_path, "coref")
    run.model.eval()
    example = TASK.from_text(["Ann has a dog. It likes her."], tokenizer("default"))
    assert example.sentences == (("Ann", "has", "a", "dog", "."), ("It", "likes", "her", "."))
    assert len(run.model.predict(TASK.collate([example], run.maker))) == 1
    clusters = [[(0, 0), (7, 7)], [(2, 3), (5, 5)]]
    segments = [(segment.text, segment.label) for segment in TASK.render(example, clusters)]
    assert segments == [
        ("Ann", "1"),
        ("has", ""),
        ("a dog", "2"),
        (".", ""),
        ("It", "2"),
        ("likes", ""),
        ("her", "1"),
        (".", ""),
    ]
    assert TASK.as_json(example, clusters)["clusters"][1][0] == {"first": 2, "last": 3, "text": "a dog"}


def test_unknown_speakers_have_the_id_zero(tmp_path):
    run, _ = small_run(tmp_path, "coref", elmo={"mode": "none"})
    names = ("x", "-", "", "*", "_", "x", "y", "y")
    batch = run.task.collate([coref.Example(sentences=(tuple("abcdefgh"),), speakers=names)], run.maker)
    speakers = batch.documents[0].speakers.tolist()
    assert speakers[1:5] == [0, 0, 0, 0]
    assert 0 != speakers[0] == speakers[5] != speakers[6] == speakers[7] != 0


def test_the_detection_loss_is_the_sum_over_all_spans_divided_by_the_spans_after_pruning():
    scores = torch.tensor([0.0, 2.0, -1.0])  # three spans, two after pruning
    links = Links(*(torch.zeros(2, dtype=torch.long),) * 2, torch.zeros(2, 1), torch.zeros(2, 2), scores, scores > 1)
    expected = (math.log(2) + math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2
    assert detection_loss(links).item() == pytest.approx(expected, rel=1e-6)
