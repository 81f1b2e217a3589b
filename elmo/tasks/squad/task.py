"""The definition of the squad task: answers to questions as spans of a passage, scored by word F1."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from elmo.errors import DataError
from elmo.tasks.squad.data import Example, make_example, read_examples
from elmo.tasks.squad.model import AnswerPrediction, SQuADBatch, SQuADConfig, SQuADModel
from elmo.tasks.squad.score import METRIC, score
from elmo.tasks.task import Labels, Segment, Task
from elmo.tasks.token_batch import BatchMaker, TokenBatch
from elmo.text.tokenize import Tokenizer

log = logging.getLogger(__name__)


def missing_labels(examples: Sequence[Example]) -> str:
    return "" if any(example.answers for example in examples) else "no question has an answer"


def labels(examples: Sequence[Example]) -> Labels:
    return {}


def training_examples(examples: list[Example], config: SQuADConfig) -> list[Example]:
    """The questions with an answer whose passage is not longer than max_passage; a warning counts the longer ones."""
    answered = [example for example in examples if example.answers]
    suitable = [example for example in answered if len(example.passage) <= config.max_passage]
    num_long = len(answered) - len(suitable)
    if num_long:
        log.warning(
            "%d of %d questions with an answer are not used for training: their passages are longer than %d tokens "
            "(model.max_passage).",
            *(num_long, len(answered), config.max_passage),
        )
    if not suitable:
        raise DataError(
            f"No question of the training file has an answer in a passage of at most {config.max_passage} tokens."
        )
    return suitable


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
    """One row per passage. A frozen biLM embeds it sentence by sentence, as it was trained; a tuned biLM as a whole."""
    if maker.source is None:
        return maker.tokens([example.passage for example in examples])
    return maker.joined([example.passage_sentences for example in examples])


def score_predictions(gold: Sequence[Example], predicted: Sequence[AnswerPrediction]) -> dict[str, float]:
    texts = [example.text_of(answer.first, answer.last) for example, answer in zip(gold, predicted, strict=True)]
    return score(gold, texts)


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    return make_example(fields[0], fields[1], tokenize_words=tokenize)


def render(example: Example, prediction: AnswerPrediction) -> list[Segment]:
    """The answer and its probability, then the passage with the answer labelled."""
    start, end = _characters(example, prediction)
    answer = Segment(example.context[start:end], "answer")
    passage = (Segment(example.context[:start].strip()), answer, Segment(example.context[end:].strip()))
    return [
        Segment(f"{answer.text} ({prediction.probability:.0%})", "answer"),
        Segment("<-"),
        *(segment for segment in passage if segment.text),
    ]


def as_json(example: Example, prediction: AnswerPrediction) -> dict[str, Any]:
    start, end = _characters(example, prediction)
    return {
        "id": example.id,
        "question": example.question_text,
        "answer": example.context[start:end],
        "start": start,
        "end": end,
        "probability": round(prediction.probability, 6),
    }


def _characters(example: Example, prediction: AnswerPrediction) -> tuple[int, int]:
    """The first character of the answer in the context, and the one after its last."""
    return example.spans[prediction.first][0], example.spans[prediction.last][1]


def size(example: Example) -> int:
    """The length of the passage, which dominates the cost of an example."""
    return len(example.passage)


def texts(example: Example) -> dict[str, Sequence[Sequence[str]]]:
    """The text for the fine-tuning of a biLM."""
    return {"contexts": example.passage_sentences, "questions": (example.question,)}


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
    score=score_predictions,
    from_text=from_text,
    render=render,
    as_json=as_json,
    reads_raw_text=True,
    training_examples=training_examples,
    size=size,
    texts=texts,
    missing_labels=missing_labels,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "chars": {"num_filters": 100, "width": 5, "dim": 20},
        "elmo": {"penalty": 0.001, "dropout": 0.5, "place": "both"},
        "optim": {"name": "adam", "lr": 1e-3, "clip_norm": 5.0, "halve_after": 1, "ema": 0.999},
        "train": {"batch_size": 45, "epochs": 24, "patience": 4},
    },
)
