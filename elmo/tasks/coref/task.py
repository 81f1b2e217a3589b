"""Coreference as one value for the framework: documents in, clusters of mentions out, CoNLL's average F1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from elmo.errors import DataError
from elmo.tasks.coref.data import Example, Mention, sorted_clusters
from elmo.tasks.coref.data import read_examples as read
from elmo.tasks.coref.model import CorefBatch, CorefConfig, CorefModel, Document
from elmo.tasks.coref.score import METRIC, score
from elmo.tasks.task import Labels, Piece, Task
from elmo.tasks.token_batch import BatchMaker
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import Tokenizer

NOBODY = ("", "-", "*", "_")  # what files write where a speaker is not known
Clusters = Sequence[Sequence[Mention]]


def labels(examples: Sequence[Example]) -> Labels:
    return {"genre": tuple(sorted({example.genre for example in examples}))}


def training_examples(examples: list[Example], config: CorefConfig) -> list[Example]:
    """Documents of at most max_sentences sentences: longer ones in parts, links across them forgotten."""
    return [part for example in examples for part in _parts(example, config.max_sentences)]


def _parts(example: Example, most: int) -> Iterator[Example]:
    if len(example.sentences) <= most:
        yield example
        return
    count = -(-len(example.sentences) // most)
    size = -(-len(example.sentences) // count)  # parts of like length
    start = 0
    for place in range(0, len(example.sentences), size):
        sentences = example.sentences[place : place + size]
        end = start + sum(map(len, sentences))
        inside = [
            [(a - start, b - start) for a, b in cluster if start <= a and b < end] for cluster in example.clusters or ()
        ]
        clusters = sorted_clusters(cluster for cluster in inside if len(cluster) > 1)
        speakers = example.speakers[start:end]
        yield Example(sentences=sentences, clusters=clusters, doc=example.doc, genre=example.genre, speakers=speakers)
        start = end


def collate(examples: Sequence[Example], maker: BatchMaker) -> CorefBatch:
    tokens = maker.tokens([sentence for example in examples for sentence in example.sentences])
    places = tokens.mask.flatten().nonzero()[:, 0]
    documents = tuple(_document(example, maker) for example in examples)
    return CorefBatch(tokens=tokens, places=places, documents=documents)


def _document(example: Example, maker: BatchMaker) -> Document:
    names = {name: number for number, name in enumerate(dict.fromkeys(example.speakers), 1) if name not in NOBODY}
    speakers = [names.get(name, 0) for name in example.speakers] or [0] * sum(map(len, example.sentences))
    gold = None
    if example.clusters is not None:
        rows = [
            (first, last, number)
            for number, cluster in enumerate(example.clusters, 1)
            for first, last in cluster
            if len(cluster) > 1
        ]
        gold = torch.tensor(rows).reshape(-1, 3)  # (mentions, 3)
    return Document(
        lengths=tuple(map(len, example.sentences)),
        genre=maker.number("genre", example.genre),
        speakers=torch.tensor(speakers),
        gold=gold,
    )


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    """A text in sentences."""
    cut = [tuple(token.text for token in tokenize(fields[0][start:end])) for start, end in split_sentences(fields[0])]
    sentences = tuple(sentence for sentence in cut if sentence)
    if not sentences:
        raise DataError("The text has no words.")
    return Example(sentences=sentences)


def render(example: Example, clusters: Clusters) -> list[Piece]:
    """The text, each mention marked with its cluster's number; of mentions inside each other, the innermost first."""
    home = {mention: number for number, cluster in enumerate(sorted_clusters(clusters), 1) for mention in cluster}
    names: list[str] = []
    tokens = example.tokens
    for place in range(len(tokens)):
        around = [mention for mention in home if mention[0] <= place <= mention[1]]
        inner = min(around, key=lambda mention: mention[1] - mention[0], default=None)
        names.append("" if inner is None else f"{home[inner]}:{inner}")
    pieces: list[Piece] = []
    start = 0
    for place in range(1, len(tokens) + 1):
        if place == len(tokens) or names[place] != names[start]:
            pieces.append(Piece(" ".join(tokens[start:place]), names[start].split(":")[0]))
            start = place
    return pieces


def as_json(example: Example, clusters: Clusters) -> dict[str, Any]:
    tokens = example.tokens
    return {
        "doc": example.doc,
        "sentences": [list(sentence) for sentence in example.sentences],
        "clusters": [
            [{"first": a, "last": b, "text": " ".join(tokens[a : b + 1])} for a, b in cluster]
            for cluster in sorted_clusters(clusters)
        ],
    }


TASK = Task(
    name="coref",
    title="Coref",
    metric=METRIC,
    fields=("text",),
    model_config=CorefConfig,
    read=read,
    labels=labels,
    collate=collate,
    build=CorefModel,
    score=score,
    from_text=from_text,
    render=render,
    as_json=as_json,
    training_examples=training_examples,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "chars": {"num_filters": 50, "width": 3, "dim": 8},
        "elmo": {"penalty": 0.001, "dropout": 0.5, "place": "input"},
        "optim": {"name": "adam", "lr": 1e-3, "clip_norm": 5.0, "halve_after": 4},
        "train": {"batch_size": 1, "epochs": 60, "patience": 10},
    },
)
