"""The definition of the ner task: named entity recognition, tags of tokens, scored by span F1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elmo.errors import DataError
from elmo.tasks.ner.data import Example, read_examples
from elmo.tasks.ner.model import NERBatch, NERConfig, NERModel
from elmo.tasks.ner.score import METRIC, score
from elmo.tasks.span_text import span_json, span_segments
from elmo.tasks.task import Labels, Segment, Task
from elmo.tasks.token_batch import BatchMaker
from elmo.text.spans import spans_of_tags
from elmo.text.tokenize import Tokenizer


def labels(examples: Sequence[Example]) -> Labels:
    """O, and B- and I- of every kind in the examples, also of kinds that occur only as single words."""
    kinds = sorted({tag[2:] for example in examples for tag in example.tags or () if tag != "O"})
    if not kinds:
        raise DataError("The training file has no entity: every tag is O.")
    return {"tag": ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))}


def collate(examples: Sequence[Example], maker: BatchMaker) -> NERBatch:
    """Padded sentences; a tag that the training data does not have becomes O, so its entity is scored as missed."""
    tokens = maker.tokens([example.tokens for example in examples])
    if any(example.tags is None for example in examples):
        return NERBatch(tokens=tokens, tags=None)
    tags = np.zeros(tokens.mask.shape, dtype=np.int64)  # (B, T)
    for row, example in enumerate(examples):
        tags[row, : len(example.tokens)] = [max(maker.label_id("tag", tag), 0) for tag in example.tags or ()]
    return NERBatch(tokens=tokens, tags=torch.from_numpy(tags))


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    return Example(tokens=tuple(token.text for token in tokenize(fields[0])))


def render(example: Example, tags: Sequence[str]) -> list[Segment]:
    """The sentence with entities labelled by their kind."""
    return span_segments(example.tokens, spans_of_tags(tags))


def as_json(example: Example, tags: Sequence[str]) -> dict[str, Any]:
    spans = [span_json(example.tokens, span, "kind") for span in spans_of_tags(tags)]
    return {"tokens": list(example.tokens), "tags": list(tags), "entities": spans}


TASK = Task(
    name="ner",
    title="NER",
    metric=METRIC,
    fields=("text",),
    model_config=NERConfig,
    read=read_examples,
    labels=labels,
    collate=collate,
    build=NERModel,
    score=score,
    from_text=from_text,
    render=render,
    as_json=as_json,
    by_sentence=True,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "chars": {"num_filters": 128, "width": 3},
        "elmo": {"penalty": 0.1, "dropout": 0.5},
        "optim": {"name": "adam", "lr": 1e-3, "clip_norm": 5.0, "halve_after": 3},
        "train": {"batch_size": 32, "epochs": 40, "patience": 6},
    },
)
