"""A few examples of snli, srl, squad and coref, and small runs on them that take about a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.coref import data as coref
from elmo.tasks.optim import make_optimizer, update
from elmo.tasks.predict import evaluate
from elmo.tasks.run import Run, Splits, new_run
from elmo.tasks.snli import data as snli
from elmo.tasks.squad import data as squad
from elmo.tasks.srl import data as srl
from elmo.tasks.task import load_task
from elmo.tasks.token_batch import to_device

SNLI = [
    snli.Example(premise=tuple(p.split()), hypothesis=tuple(h.split()), label=label)
    for p, h, label in [
        ("A man sleeps on the bench .", "A man sleeps .", "entailment"),
        ("A man sleeps on the bench .", "A man runs .", "contradiction"),
        ("A man sleeps on the bench .", "A tired man sleeps on a bench in the park .", "neutral"),
        ("Two girls sing .", "Girls sing .", "entailment"),
        ("Two girls sing .", "Nobody sings .", "contradiction"),
        ("Two girls sing .", "Two girls sing a song for their old aunt .", "neutral"),
    ]
]
SRL = [
    srl.Example(tokens=tuple(text.split()), predicate=predicate, tags=tuple(tags.split()))
    for text, predicate, tags in [
        ("Ann gave him the book", 1, "B-ARG0 B-V B-ARG2 B-ARG1 I-ARG1"),
        ("Ann gave him the book she wrote", 1, "B-ARG0 B-V B-ARG2 B-ARG1 I-ARG1 I-ARG1 I-ARG1"),
        ("Ann gave him the book she wrote", 6, "O O O B-ARG1 I-ARG1 B-ARG0 B-V"),
        ("Yesterday it rained", 2, "B-ARGM-TMP O B-V"),
        ("Stop", 0, "B-V"),
    ]
]
_RIVER = "The Rhine flows from the Alps to the sea. It is 1,233 km long, and Basel lies on it."
_BRIDGE = "The bridge was built in 1903 by Ida Berg (1860-1931)."
SQUAD = [
    squad.make_example(context, question, [(answer, context.index(answer))], id=str(number))
    for number, (context, question, answer) in enumerate(
        [
            (_RIVER, "Where does the Rhine rise?", "the Alps"),
            (_RIVER, "How long is it?", "1,233 km"),
            (_RIVER, "Which town lies on it?", "Basel"),
            (_BRIDGE, "Who built the bridge?", "Ida Berg"),
            (_BRIDGE, "When did she die?", "1931"),
            (_BRIDGE, "When was it built?", "1903"),
        ]
    )
]


def _document(text: str, clusters: Sequence[Sequence[tuple[int, int]]], **fields: Any) -> coref.Example:
    sentences = tuple(tuple(sentence.split()) for sentence in text.split("|"))
    return coref.Example(sentences=sentences, clusters=coref.sorted_clusters(clusters), **fields)


COREF = [
    _document(
        "Ann has a dog . | The dog likes her . | She likes it .",
        [[(0, 0), (8, 8), (10, 10)], [(2, 3), (5, 6), (12, 12)]],
        genre="tale",
    ),
    _document(
        "I am here . | You see me ? | I do .",
        [[(0, 0), (6, 6)], [(4, 4), (8, 8)]],
        genre="talk",
        speakers=("x",) * 4 + ("x",) * 4 + ("y",) * 3,
    ),
    _document("It rained . | The town slept .", [], genre="tale"),
]
EXAMPLES: dict[str, list[Any]] = {"snli": SNLI, "srl": SRL, "squad": SQUAD, "coref": COREF}
WRITE = {
    "snli": snli.write_examples,
    "srl": srl.write_examples,
    "squad": squad.write_examples,
    "coref": coref.write_examples,
}
SMALL: dict[str, dict[str, Any]] = {
    "snli": {"words": {"dim": 8}, "model": {"hidden_dim": 12, "dropout": 0.0}},
    "srl": {"words": {"dim": 8}, "model": {"hidden_dim": 16, "num_layers": 2, "mark_dim": 4, "dropout": 0.0}},
    "squad": {
        "words": {"dim": 8},
        "chars": {"num_filters": 4, "dim": 4},
        "model": {"hidden_dim": 10, "dropout": 0.0},
        "optim": {"ema": 0.0},
    },
    "coref": {
        "words": {"dim": 8},
        "chars": {"num_filters": 0},
        "model": {
            "hidden_dim": 10,
            "score_dim": 16,
            "feature_dim": 4,
            "max_width": 4,
            "input_dropout": 0.0,
            "dropout": 0.0,
        },
    },
}


def small_config(folder: Path, name: str, **sections: Any) -> RunConfig:
    """Settings of a small model; writes the examples to a file that is both train and dev."""
    path = folder / f"{name}.data"
    WRITE[name](path, EXAMPLES[name])
    base = {
        "data": {"train": str(path), "dev": str(path)},
        "words": {"min_count": 1},
        "elmo": {"model": "tiny-random"},
        "train": {"device": "cpu"},
    }
    return make_config(load_task(name), SMALL[name], base, sections)


def small_run(folder: Path, name: str, **sections: Any) -> tuple[Run, Splits]:
    """A new model and the examples of the task, read from the file."""
    return new_run(small_config(folder, name, **sections), show=False)


def learn(run: Run, examples: list[Any], *, updates: int, lr: float = 0.01) -> dict[str, float]:
    """Makes so many updates on one batch of all examples; returns the scores of these examples."""
    optimizer = make_optimizer(run.model, run.config)
    for group in optimizer.param_groups:
        group["lr"] = lr
    model: Any = run.model
    model.train()
    torch.manual_seed(0)
    batch = to_device(run.task.collate(examples, run.maker), run.device)
    for _ in range(updates):
        update(model, optimizer, model.loss(batch) + model.inputs.penalty(), 5.0)
    return evaluate(run, examples)
