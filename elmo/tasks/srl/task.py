"""The definition of the srl task: semantic roles of one predicate per example, scored by F1 of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elmo.errors import DataError
from elmo.tasks.span_text import span_json, span_segments
from elmo.tasks.srl.data import Example, read_examples
from elmo.tasks.srl.model import SRLBatch, SRLConfig, SRLModel
from elmo.tasks.srl.score import METRIC, score
from elmo.tasks.task import Labels, Segment, Task
from elmo.tasks.token_batch import BatchMaker
from elmo.text.spans import spans_of_tags
from elmo.text.tokenize import Tokenizer


def labels(examples: Sequence[Example]) -> Labels:
    """O, and B- and I- of every role in the examples."""
    roles = sorted({tag[2:] for example in examples for tag in example.tags or () if tag != "O"})
    if not roles:
        raise DataError("The training file has no argument: every tag is O.")
    return {"tag": ("O", *(f"{prefix}-{role}" for role in roles for prefix in "BI"))}


def collate(examples: Sequence[Example], maker: BatchMaker) -> SRLBatch:
    """Padded sentences; tags that the training data does not have get no loss and are scored as missed."""
    tokens = maker.tokens([example.tokens for example in examples])
    marks = np.zeros(tokens.mask.shape, dtype=np.int64)  # (B, T)
    tags = np.full(tokens.mask.shape, -1, dtype=np.int64)  # (B, T)
    for row, example in enumerate(examples):
        marks[row, example.predicate] = 1
        if example.tags is not None:
            tags[row, : len(example.tokens)] = [maker.label_id("tag", tag) for tag in example.tags]
    is_labelled = all(example.tags is not None for example in examples)
    return SRLBatch(tokens=tokens, marks=torch.from_numpy(marks), tags=torch.from_numpy(tags) if is_labelled else None)


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    """A sentence and its predicate, a word of the sentence; if the word occurs several times, the first one."""
    tokens = tuple(token.text for token in tokenize(fields[0]))
    if fields[1] not in tokens:
        raise DataError(f"The predicate {fields[1]!r} is not a word of {' '.join(tokens)!r}.")
    return Example(tokens=tokens, predicate=tokens.index(fields[1]))


def render(example: Example, tags: Sequence[str]) -> list[Segment]:
    """The sentence with arguments and predicate labelled by their roles."""
    return span_segments(example.tokens, spans_of_tags(tags))


def as_json(example: Example, tags: Sequence[str]) -> dict[str, Any]:
    arguments = [span_json(example.tokens, span, "role") for span in spans_of_tags(tags) if span.label != "V"]
    return {
        "tokens": list(example.tokens),
        "predicate": example.predicate,
        "tags": list(tags),
        "arguments": arguments,
    }


TASK = Task(
    name="srl",
    title="SRL",
    metric=METRIC,
    fields=("text", "predicate"),
    model_config=SRLConfig,
    read=read_examples,
    labels=labels,
    collate=collate,
    build=SRLModel,
    score=score,
    from_text=from_text,
    render=render,
    as_json=as_json,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "elmo": {"penalty": 0.001, "dropout": 0.1, "place": "input"},
        "optim": {"name": "adam", "lr": 2e-3, "clip_norm": 1.0, "halve_after": 2},
        "train": {"batch_size": 64, "epochs": 30, "patience": 5},
    },
)
