"""The definition of the sst task: sentiment in five classes, scored by the accuracy on whole sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elmo.tasks.sst.data import LABELS, Example, phrases_of, read_examples
from elmo.tasks.sst.model import SSTBatch, SSTConfig, SSTModel
from elmo.tasks.sst.score import METRIC, score
from elmo.tasks.task import Labels, Segment, Task
from elmo.tasks.token_batch import BatchMaker
from elmo.text.tokenize import Tokenizer

NAMES = ("very negative", "negative", "neutral", "positive", "very positive")


def labels(examples: Sequence[Example]) -> Labels:
    return {"class": LABELS}


def training_examples(examples: list[Example], config: SSTConfig) -> list[Example]:
    """Every phrase with its label, or only the sentences."""
    return phrases_of(examples) if config.phrases else examples


def collate(examples: Sequence[Example], maker: BatchMaker) -> SSTBatch:
    tokens = maker.tokens([example.tokens for example in examples])
    classes = [example.label for example in examples if example.label is not None]
    return SSTBatch(tokens=tokens, classes=torch.tensor(classes) if len(classes) == len(examples) else None)


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    return Example(tokens=tuple(token.text for token in tokenize(fields[0])))


def render(example: Example, label: int) -> list[Segment]:
    """The class, then the sentence."""
    return [Segment(NAMES[label], NAMES[label]), Segment(" ".join(example.tokens))]


def as_json(example: Example, label: int) -> dict[str, Any]:
    return {"tokens": list(example.tokens), "label": label, "name": NAMES[label]}


TASK = Task(
    name="sst",
    title="SST-5",
    metric=METRIC,
    fields=("text",),
    model_config=SSTConfig,
    read=read_examples,
    labels=labels,
    collate=collate,
    build=SSTModel,
    score=score,
    from_text=from_text,
    render=render,
    as_json=as_json,
    reads_raw_text=True,
    training_examples=training_examples,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "elmo": {"penalty": 0.001, "dropout": 0.5},
        "optim": {"name": "adam", "lr": 1e-3, "clip_norm": 5.0, "halve_after": 2},
        "train": {"batch_size": 100, "epochs": 20, "patience": 6, "validate_every": 400},
    },
)
