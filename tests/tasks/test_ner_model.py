"""The ner model: overfits a few sentences, predicts valid IOB2 tags, and does not depend on padding."""

from __future__ import annotations

import itertools

import pytest
import tiny_tasks
import torch

from elmo.errors import DataError
from elmo.tasks.layers.viterbi import bio_rules
from elmo.tasks.ner.data import Example
from elmo.tasks.ner.task import TASK, as_json, collate, labels, render
from elmo.tasks.predict import predict
from elmo.tasks.run import new_run
from elmo.tasks.task import Segment
from elmo.tasks.train import train
from elmo.text.tokenize import tokenizer

SENTENCE = Example(tokens=("Ada", "Lovelace", "left", "London"))
TAGS = ["B-PER", "I-PER", "O", "B-LOC"]


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_it_overfits_a_few_sentences(tmp_path, mode):
    overrides = {"elmo": {"mode": mode}, "model": {"dropout": 0.0}}
    record = train(tiny_tasks.overfit_settings(tmp_path, "ner", overrides), tmp_path / "run")
    assert record["test"]["f1"] == 100.0


def test_an_untrained_model_predicts_valid_iob2_tags(tmp_path):
    run, splits = new_run(tiny_tasks.settings(tmp_path, "ner"))
    torch.nn.init.normal_(run.model.project.weight, std=20.0)
    allowed, start, _ = bio_rules(run.model.labels)
    for tags in predict(run, splits.train):
        numbers = [run.model.labels.index(tag) for tag in tags]  # type: ignore[call-arg]
        assert start[numbers[0]]
        assert all(allowed[a, b] for a, b in itertools.pairwise(numbers))


def test_scores_and_loss_ignore_padding_and_neighbours(tmp_path):
    run, splits = new_run(tiny_tasks.settings(tmp_path, "ner", {"elmo": {"mode": "frozen", "place": "both"}}))
    model = run.model.eval()
    batch = collate(splits.train, run.maker)
    together = model.scores(batch.tokens)
    losses = []
    for row, example in enumerate(splits.train):
        alone = collate([example], run.maker)
        scores = model.scores(alone.tokens)[0]
        torch.testing.assert_close(together[row, : len(example.tokens)], scores, rtol=1e-4, atol=1e-5)
        losses.append(model.loss(alone))
    torch.testing.assert_close(model.loss(batch), torch.stack(losses).mean(), rtol=1e-4, atol=1e-4)


def test_labels_have_b_and_i_tags_and_need_an_entity():
    assert labels([Example(tokens=("a", "b"), tags=("O", "B-X"))]) == {"tag": ("O", "B-X", "I-X")}
    with pytest.raises(DataError, match="every tag is O"):
        labels([Example(tokens=("a",), tags=("O",))])


def test_an_unknown_tag_is_trained_as_o(tmp_path):
    run, _ = new_run(tiny_tasks.settings(tmp_path, "ner"))
    batch = collate([Example(tokens=("a", "b"), tags=("B-NEW", "B-PER"))], run.maker)
    assert batch.tags.tolist() == [[0, run.maker.label_id("tag", "B-PER")]]
    assert collate([SENTENCE], run.maker).tags is None


def test_rendered_text_has_labelled_spans():
    assert render(SENTENCE, TAGS) == [Segment("Ada Lovelace", "PER"), Segment("left"), Segment("London", "LOC")]
    assert render(Example(tokens=("It", "rained")), ["O", "O"]) == [Segment("It rained")]
    entities = as_json(SENTENCE, TAGS)["entities"]
    assert entities[0] == {"kind": "PER", "first": 0, "last": 1, "text": "Ada Lovelace"}
    assert TASK.from_text(["Ada left."], tokenizer("whitespace")).tokens == ("Ada", "left.")
