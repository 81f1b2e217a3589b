"""Question answering as one value for the framework: questions about passages in, spans out, word F1 of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elmo.errors import DataError
from elmo.tasks.squad.data import Example, make_example, read_examples
from elmo.tasks.squad.model import SpanScores, SQuADBatch, SQuADConfig, SQuADModel
from elmo.tasks.squad.score import METRIC, score
from elmo.tasks.task import Labels, Piece, Task
from elmo.tasks.token_batch import BatchMaker, TokenBatch
from elmo.text.tokenize import Tokenizer


def labels(examples: Sequence[Example]) -> Labels:
    return {}


def training_examples(examples: list[Example], config: SQuADConfig) -> list[Example]:
    """Questions whose answer is known, about passages that are not too long."""
    kept = [example for example in examples if example.answers and len(example.passage) <= config.max_passage]
    if not kept:
        raise DataError("No question of the training file has an answer in a passage short enough to train on.")
    return kept


def collate(examples: Sequence[Example], maker: BatchMaker) -> SQuADBatch:
    passage = _passages(examples, maker)
    starts, ends = np.zeros(passage.mask.shape, dtype=bool), np.zeros(passage.mask.shape, dtype=bool)  # (B, T)
    for row, example in enumerate(examples):
        for answer in example.answers:
            starts[row, answer.first] = ends[row, answer.last] = True
    is_labelled = all(example.answers for example in examples)
    return SQuADBatch(
        question=maker.tokens([example.question for example in examples]),
        passage=passage,
        starts=torch.from_numpy(starts) if is_labelled else None,
        ends=torch.from_numpy(ends) if is_labelled else None,
    )


def _passages(examples: Sequence[Example], maker: BatchMaker) -> TokenBatch:
    """Passages as rows. A frozen biLM reads them sentence by sentence, as it was trained; a tuned one whole."""
    if maker.source is None:
        return maker.tokens([example.passage for example in examples])
    return maker.joined([example.passage_sentences for example in examples])


def score_found(gold: Sequence[Example], predicted: Sequence[SpanScores]) -> dict[str, float]:
    return score(gold, [e.text_of(found.first, found.last) for e, found in zip(gold, predicted, strict=True)])


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    """A question about a passage; both are cut as the training data was, whatever tokenizer was asked for."""
    return make_example(fields[0], fields[1])


def render(example: Example, found: SpanScores) -> list[Piece]:
    """The answer and how sure the model is, then the passage with the answer marked."""
    start, end = example.spans[found.first][0], example.spans[found.last][1]
    around = [Piece(example.context[:start].strip()), Piece(example.context[end:].strip())]
    answer = Piece(example.context[start:end], "answer")
    return [
        Piece(f"{answer.text} ({found.probability:.0%})", "answer"),
        Piece("<-"),
        *(piece for piece in (around[0], answer, around[1]) if piece.text),
    ]


def as_json(example: Example, found: SpanScores) -> dict[str, Any]:
    start, end = example.spans[found.first][0], example.spans[found.last][1]
    return {
        "id": example.id,
        "question": example.question_text,
        "answer": example.context[start:end],
        "start": start,
        "end": end,
        "probability": round(found.probability, 6),
    }


def size(example: Example) -> int:
    return len(example.passage)


TASK = Task(
    name="squad",
    title="SQuAD",
    metric=METRIC,
    fields=("passage", "question"),
    model_config=SQuADConfig,
    read=read_examples,
    labels=labels,
    collate=collate,
    build=SQuADModel,
    score=score_found,
    from_text=from_text,
    render=render,
    as_json=as_json,
    training_examples=training_examples,
    size=size,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "chars": {"num_filters": 100, "width": 5, "dim": 20},
        "elmo": {"penalty": 0.001, "dropout": 0.5, "place": "both"},
        "optim": {"name": "adam", "lr": 1e-3, "clip_norm": 5.0, "halve_after": 1, "ema": 0.999},
        "train": {"batch_size": 45, "epochs": 24, "patience": 4},
    },
)
