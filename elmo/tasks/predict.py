"""Predictions and scores of a run: examples in, one plain value an example out, in the examples' order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elmo.progress import Progress
from elmo.tasks.batches import group
from elmo.tasks.run import Run
from elmo.tasks.token_batch import to_device

LARGER = 4  # than a batch of the training: there is no gradient to hold


def predict(run: Run, examples: Sequence[Any], *, show: bool | None = False) -> list[Any]:
    """The model's prediction for each example; batches are by size, and larger than the training's."""
    train = run.config.train
    sizes = [run.task.size(example) for example in examples]
    order = sorted(range(len(examples)), key=lambda i: -sizes[i])
    found: list[Any] = [None] * len(examples)
    was_training = run.model.training
    run.model.eval()
    with Progress("predicting", len(examples), unit="examples", show=show) as progress, torch.inference_mode():
        for batch in group(order, sizes, LARGER * train.batch_size, LARGER * train.max_tokens):
            tensors = to_device(run.task.collate([examples[i] for i in batch], run.maker), run.device)
            with run.autocast:
                predictions = run.model.predict(tensors)  # type: ignore[operator]  # a TaskModel
            for number, prediction in zip(batch, predictions, strict=True):
                found[number] = prediction
            progress.advance(len(batch))
    run.model.train(was_training)
    return found


def evaluate(run: Run, examples: Sequence[Any], *, show: bool | None = False) -> dict[str, float]:
    """Scores of the predictions for labelled examples, in percent; `run.task.metric` is the one that counts."""
    return {name: float(value) for name, value in run.task.score(examples, predict(run, examples, show=show)).items()}
