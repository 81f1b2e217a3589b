"""The definition of the snli task: textual entailment, a label per pair of sentences, scored by accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elmo.tasks.snli.data import LABELS, Example, read_examples
from elmo.tasks.snli.model import LabelPrediction, SNLIBatch, SNLIConfig, SNLIModel
from elmo.tasks.snli.score import METRIC, score
from elmo.tasks.task import Labels, Segment, Task
from elmo.tasks.token_batch import BatchMaker
from elmo.text.tokenize import Tokenizer


def labels(examples: Sequence[Example]) -> Labels:
    return {"class": LABELS}


def collate(examples: Sequence[Example], maker: BatchMaker) -> SNLIBatch:
    classes = [maker.label_id("class", example.label) for example in examples if example.label is not None]
    return SNLIBatch(
        premise=maker.tokens([example.premise for example in examples]),
        hypothesis=maker.tokens([example.hypothesis for example in examples]),
        classes=torch.tensor(classes) if len(classes) == len(examples) else None,
    )


def score_predictions(gold: Sequence[Example], predicted: Sequence[LabelPrediction]) -> dict[str, float]:
    return score(gold, [prediction.label for prediction in predicted])


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    premise, hypothesis = (tuple(token.text for token in tokenize(text)) for text in fields)
    return Example(premise=premise, hypothesis=hypothesis)


def render(example: Example, prediction: LabelPrediction) -> list[Segment]:
    """The label with its probability, then both sentences."""
    probability = prediction.probabilities[prediction.label]
    return [
        Segment(f"{prediction.label} {probability:.0%}", prediction.label),
        Segment(" ".join(example.premise)),
        Segment("=>"),
        Segment(" ".join(example.hypothesis)),
    ]


def as_json(example: Example, prediction: LabelPrediction) -> dict[str, Any]:
    return {
        "premise": list(example.premise),
        "hypothesis": list(example.hypothesis),
        "label": prediction.label,
        "probabilities": {label: round(value, 6) for label, value in prediction.probabilities.items()},
    }


def texts(example: Example) -> dict[str, Sequence[Sequence[str]]]:
    """The text for the fine-tuning of a biLM."""
    return {"premises": (example.premise,), "hypotheses": (example.hypothesis,)}


TASK = Task(
    name="snli",
    title="SNLI",
    metric=METRIC,
    fields=("premise", "hypothesis"),
    model_config=SNLIConfig,
    read=read_examples,
    labels=labels,
    collate=collate,
    build=SNLIModel,
    score=score_predictions,
    from_text=from_text,
    render=render,
    as_json=as_json,
    reads_raw_text=True,
    texts=texts,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "elmo": {"penalty": 0.001, "dropout": 0.5, "place": "both"},
        "optim": {"name": "adam", "lr": 4e-4, "clip_norm": 10.0, "halve_after": 1},
        "train": {"batch_size": 32, "epochs": 20, "patience": 4},
    },
)
