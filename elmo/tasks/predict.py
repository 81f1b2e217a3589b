"""Predictions and scores of a run: one prediction per example, in the order of the examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elmo.progress import Progress
from elmo.tasks.batches import split_into_batches
from elmo.tasks.run import Run
from elmo.tasks.token_batch import to_device

BATCH_FACTOR = 4  # size of a batch relative to training; without gradients a batch needs less memory


def predict(run: Run, examples: Sequence[Any], *, show: bool | None = False) -> list[Any]:
    """The model's prediction for each example. Batches are larger than in training."""
    train = run.config.train
    sizes = [run.task.size(example) for example in examples]
    order = sorted(range(len(examples)), key=lambda i: -sizes[i])
    predictions: list[Any] = [None] * len(examples)
    was_training = run.model.training
    run.model.eval()
    with Progress("predicting", len(examples), unit="examples", show=show) as progress, torch.inference_mode():
        for indices in split_into_batches(
            order, sizes, BATCH_FACTOR * train.batch_size, BATCH_FACTOR * train.max_tokens
        ):
            batch = to_device(run.task.collate([examples[i] for i in indices], run.maker), run.device)
            with run.autocast:
                batch_predictions = run.model.predict(batch)  # type: ignore[operator]  # a TaskModel
            for index, prediction in zip(indices, batch_predictions, strict=True):
                predictions[index] = prediction
            progress.advance(len(indices))
    run.model.train(was_training)
    return predictions


def evaluate(run: Run, examples: Sequence[Any], *, show: bool | None = False) -> dict[str, float]:
    """Scores of the predictions for labelled examples, in percent; `run.task.metric` is the main metric."""
    return {name: float(value) for name, value in run.task.score(examples, predict(run, examples, show=show)).items()}
