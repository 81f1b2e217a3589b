"""The snli model: overfits a few pairs, and predictions do not depend on padding and neighbours."""

from __future__ import annotations

import pytest
import torch
from small_runs import SNLI, learn, small_run

from elmo.tasks.snli.data import LABELS
from elmo.tasks.snli.task import TASK
from elmo.text.tokenize import tokenizer


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_it_overfits_a_few_pairs(tmp_path, mode):
    run, splits = small_run(tmp_path, "snli", elmo={"mode": mode, "dropout": 0.0})
    assert learn(run, splits.train, updates=40)["accuracy"] == 100


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_scores_do_not_depend_on_padding_and_neighbours(tmp_path, mode):
    run, splits = small_run(tmp_path, "snli", elmo={"mode": mode})
    run.model.eval()
    together = run.model.scores(TASK.collate(splits.train, run.maker))  # (B, K)
    alone = torch.cat([run.model.scores(TASK.collate([example], run.maker)) for example in splits.train])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_elmo_is_before_and_after_the_encoder(tmp_path):
    run, _ = small_run(tmp_path, "snli", elmo={"mode": "frozen"})
    model = run.model
    assert model.inputs.output_dim == run.embedder.dim
    assert model.project.in_features == 4 * (model.encoder.dim + run.embedder.dim)


def test_raw_text_gets_a_label_with_probabilities(tmp_path):
    run, _ = small_run(tmp_path, "snli")
    example = TASK.from_text(["Two girls didn't sing.", "Nobody sang."], tokenizer("default"))
    assert example.premise == ("Two", "girls", "didn", "'t", "sing", ".")
    batch = TASK.collate([example, SNLI[0]], run.maker)
    assert batch.classes is None
    run.model.eval()
    prediction = run.model.predict(batch)[0]
    values = TASK.as_json(example, prediction)
    assert sum(values["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    assert values["label"] == max(LABELS, key=lambda label: prediction.probabilities[label])
    assert TASK.render(example, prediction)[0].label == prediction.label
