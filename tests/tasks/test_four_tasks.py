"""snli, srl, squad and coref with the whole framework: train, save, open, predict, render and write as JSON."""

from __future__ import annotations

import json
import math

import pytest
from small_runs import small_config

from elmo.tasks.predict import evaluate, predict
from elmo.tasks.raw_text import read_raw
from elmo.tasks.run import open_run
from elmo.tasks.train import train

RAW = {
    "snli": ["Two girls sing.", "Girls sing."],
    "srl": ["Ann gave him the book.", "gave"],
    "squad": ["Basel lies on the Rhine.", "Which town lies on it?"],
    "coref": ["Ann has a dog. The dog likes her."],
}
PLACES = {"snli": {"input", "output"}, "srl": {"input"}, "squad": {"input", "output"}, "coref": {"input"}}


@pytest.mark.parametrize("name", RAW)
def test_a_run_with_elmo_is_trained_saved_and_opened(tmp_path, name):
    config = small_config(tmp_path, name, elmo={"mode": "frozen"}, train={"epochs": 2, "batch_size": 2})
    record = train(config, tmp_path / "run")
    assert set(record["mixes"]) == PLACES[name]  # as in the paper
    run = open_run(tmp_path / "run", device="cpu")
    examples = run.task.read(tmp_path / f"{name}.data")
    assert evaluate(run, examples) == pytest.approx(record["dev"])
    assert record["dev"][run.task.metric] == record["best"]["score"]
    (raw,) = read_raw(run.task, [RAW[name]])
    for example, prediction in zip([*examples, raw], predict(run, [*examples, raw]), strict=True):
        json.dumps(run.task.as_json(example, prediction))
        segments = run.task.render(example, prediction)
        assert segments
        assert all(isinstance(segment.text, str) for segment in segments)


@pytest.mark.parametrize("name", RAW)
def test_a_tuned_bilm_trains_with_the_task(tmp_path, name):
    config = small_config(tmp_path, name, elmo={"mode": "tuned"}, train={"epochs": 1})
    assert train(config, tmp_path / "run")["updates"] >= 1


@pytest.mark.parametrize("name", RAW)
def test_training_in_bfloat16_has_a_finite_loss(tmp_path, name):
    config = small_config(tmp_path, name, elmo={"mode": "frozen"}, train={"epochs": 1, "precision": "bfloat16"})
    record = train(config, tmp_path / "run")
    assert math.isfinite(record["curve"][-1]["loss"])
