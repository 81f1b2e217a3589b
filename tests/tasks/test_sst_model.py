"""The sst model: overfits a few sentences, can train on phrases, and does not depend on padding."""

from __future__ import annotations

import pytest
import tiny_tasks
import torch

from elmo.tasks.run import new_run
from elmo.tasks.sst.data import Example
from elmo.tasks.sst.task import TASK, as_json, collate, render
from elmo.tasks.task import Segment
from elmo.tasks.train import train


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_it_overfits_a_few_sentences(tmp_path, mode):
    overrides = {
        "elmo": {"mode": mode, "dropout": 0.0},
        "model": {"input_dropout": 0.0, "dropout": 0.0, "phrases": False},  # repeated phrases would be merged
    }
    record = train(tiny_tasks.overfit_settings(tmp_path, "sst", overrides), tmp_path / "run")
    assert record["test"]["accuracy"] == 100.0


def test_training_examples_may_include_phrases(tmp_path):
    with_phrases, without_phrases = (
        new_run(tiny_tasks.settings(tmp_path, "sst", {"model": {"phrases": phrases}}))[1] for phrases in (True, False)
    )
    assert len(without_phrases.train) == 6
    assert Example(tokens=("wonderful", "film"), label=4) in with_phrases.train
    assert len(with_phrases.train) == len(set(with_phrases.train)) > 12
    assert len(with_phrases.dev) == 6  # only sentences are scored


@pytest.mark.parametrize("place", ["input", "output", "both"])
def test_scores_ignore_padding_and_neighbours(tmp_path, place):
    run, splits = new_run(tiny_tasks.settings(tmp_path, "sst", {"elmo": {"mode": "frozen", "place": place}}))
    model = run.model.eval()
    examples = [
        *splits.dev,
        Example(tokens=("one", "longer", "sentence", "than", "all", "others", "."), label=2),
    ]
    together = model.scores(collate(examples, run.maker).tokens)
    for row, example in enumerate(examples):
        alone = model.scores(collate([example], run.maker).tokens)[0]
        torch.testing.assert_close(together[row], alone, rtol=1e-4, atol=1e-5)


def test_a_batch_of_one_trains(tmp_path):
    run, splits = new_run(tiny_tasks.settings(tmp_path, "sst"))
    loss = run.model.train().loss(collate(splits.dev[:1], run.maker))
    loss.backward()
    assert loss.isfinite()
    assert collate([Example(tokens=("hm",))], run.maker).classes is None


def test_rendered_text_has_the_name_of_the_class():
    example = Example(tokens=("a", "film"))
    assert render(example, 4) == [Segment("very positive", "very positive"), Segment("a film")]
    assert as_json(example, 0) == {"tokens": ["a", "film"], "label": 0, "name": "very negative"}
    assert TASK.fields == ("text",)
