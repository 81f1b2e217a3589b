"""Textual entailment as one value for the framework: pairs of sentences in, a label out, accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from elmo.tasks.snli.data import LABELS, Example, read_examples
from elmo.tasks.snli.model import SNLIBatch, SNLIConfig, SNLIModel, Verdict
from elmo.tasks.snli.score import METRIC, score
from elmo.tasks.task import Labels, Piece, Task
from elmo.tasks.token_batch import BatchMaker
from elmo.text.tokenize import Tokenizer


def labels(examples: Sequence[Example]) -> Labels:
    return {"class": LABELS}


def collate(examples: Sequence[Example], maker: BatchMaker) -> SNLIBatch:
    known = [maker.number("class", example.label) for example in examples if example.label is not None]
    return SNLIBatch(
        premise=maker.tokens([example.premise for example in examples]),
        hypothesis=maker.tokens([example.hypothesis for example in examples]),
        classes=torch.tensor(known) if len(known) == len(examples) else None,
    )


def score_verdicts(gold: Sequence[Example], predicted: Sequence[Verdict]) -> dict[str, float]:
    return score(gold, [verdict.label for verdict in predicted])


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    premise, hypothesis = (tuple(token.text for token in tokenize(text)) for text in fields)
    return Example(premise=premise, hypothesis=hypothesis)


def render(example: Example, verdict: Verdict) -> list[Piece]:
    """The verdict with its probability, then both sentences."""
    share = verdict.probabilities[verdict.label]
    return [
        Piece(f"{verdict.label} {share:.0%}", verdict.label),
        Piece(" ".join(example.premise)),
        Piece("=>"),
        Piece(" ".join(example.hypothesis)),
    ]


def as_json(example: Example, verdict: Verdict) -> dict[str, Any]:
    return {
        "premise": list(example.premise),
        "hypothesis": list(example.hypothesis),
        "label": verdict.label,
        "probabilities": {label: round(share, 6) for label, share in verdict.probabilities.items()},
    }


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
    score=score_verdicts,
    from_text=from_text,
    render=render,
    as_json=as_json,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "elmo": {"penalty": 0.001, "dropout": 0.5, "place": "both"},
        "optim": {"name": "adam", "lr": 4e-4, "clip_norm": 10.0, "halve_after": 1},
        "train": {"batch_size": 32, "epochs": 20, "patience": 4},
    },
)
