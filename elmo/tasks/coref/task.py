"""The definition of the coref task: clusters of mentions in documents, scored by CoNLL's average F1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from elmo.errors import DataError
from elmo.tasks.coref.data import Example, Mention, sorted_clusters
from elmo.tasks.coref.data import read_examples as read
from elmo.tasks.coref.model import CorefBatch, CorefConfig, CorefModel, Document
from elmo.tasks.coref.score import METRIC, score
from elmo.tasks.task import Labels, Segment, Task
from elmo.tasks.token_batch import BatchMaker
from elmo.text.sentences import split_sentences
from elmo.text.tokenize import Tokenizer

UNKNOWN_SPEAKERS = ("", "-", "*", "_")  # what files write for an unknown speaker
Clusters = Sequence[Sequence[Mention]]


def missing_labels(examples: Sequence[Example]) -> str:
    """Documents without clusters, or only clusters of one mention, which the score ignores."""
    unlabelled = [number for number, example in enumerate(examples, 1) if example.clusters is None]
    if unlabelled:
        return f"{len(unlabelled)} of {len(examples)} documents have no clusters, the first is document {unlabelled[0]}"
    has_links = any(len(cluster) > 1 for example in examples for cluster in example.clusters or ())
    return "" if has_links else "no document has a cluster of two or more mentions"


def labels(examples: Sequence[Example]) -> Labels:
    return {"genre": tuple(sorted({example.genre for example in examples}))}


def training_examples(examples: list[Example], config: CorefConfig) -> list[Example]:
    """Documents of at most max_sentences sentences; longer ones are split, and links between the chunks are dropped."""
    return [chunk for example in examples for chunk in _chunks(example, config.max_sentences)]


def _chunks(example: Example, max_sentences: int) -> Iterator[Example]:
    if len(example.sentences) <= max_sentences:
        yield example
        return
    num_chunks = -(-len(example.sentences) // max_sentences)
    size = -(-len(example.sentences) // num_chunks)  # sentences, so that chunks have similar lengths
    start = 0  # first token of the chunk
    for first_sentence in range(0, len(example.sentences), size):
        sentences = example.sentences[first_sentence : first_sentence + size]
        end = start + sum(map(len, sentences))
        inside = [
            [(a - start, b - start) for a, b in cluster if start <= a and b < end] for cluster in example.clusters or ()
        ]
        clusters = sorted_clusters(cluster for cluster in inside if len(cluster) > 1)
        speakers = example.speakers[start:end]
        yield Example(sentences=sentences, clusters=clusters, doc=example.doc, genre=example.genre, speakers=speakers)
        start = end


def collate(examples: Sequence[Example], maker: BatchMaker) -> CorefBatch:
    """The sentences of all documents as rows, and the documents."""
    tokens = maker.tokens([sentence for example in examples for sentence in example.sentences])
    token_indices = tokens.mask.flatten().nonzero()[:, 0]
    documents = tuple(_document(example, maker) for example in examples)
    return CorefBatch(tokens=tokens, token_indices=token_indices, documents=documents)


def _document(example: Example, maker: BatchMaker) -> Document:
    names = dict.fromkeys(example.speakers)
    speaker_ids = {name: number for number, name in enumerate(names, 1) if name not in UNKNOWN_SPEAKERS}
    speakers = [speaker_ids.get(name, 0) for name in example.speakers] or [0] * sum(map(len, example.sentences))
    gold = None
    if example.clusters is not None:
        mentions = [
            (first, last, number)
            for number, cluster in enumerate(example.clusters, 1)
            for first, last in cluster
            if len(cluster) > 1
        ]
        gold = torch.tensor(mentions).reshape(-1, 3)  # (mentions, 3)
    return Document(
        lengths=tuple(map(len, example.sentences)),
        genre=maker.label_id("genre", example.genre),
        speakers=torch.tensor(speakers),
        gold=gold,
    )


def from_text(fields: Sequence[str], tokenize: Tokenizer) -> Example:
    """The text split into sentences."""
    text = fields[0]
    tokenized = [tuple(token.text for token in tokenize(text[start:end])) for start, end in split_sentences(text)]
    sentences = tuple(sentence for sentence in tokenized if sentence)
    if not sentences:
        raise DataError("The text has no words.")
    return Example(sentences=sentences)


def render(example: Example, clusters: Clusters) -> list[Segment]:
    """The text with each mention labelled by the number of its cluster; of nested mentions the innermost is shown."""
    cluster_of = {mention: number for number, cluster in enumerate(sorted_clusters(clusters), 1) for mention in cluster}
    innermost: list[Mention | None] = []  # per token
    tokens = example.tokens
    for position in range(len(tokens)):
        around = [mention for mention in cluster_of if mention[0] <= position <= mention[1]]
        innermost.append(min(around, key=lambda mention: mention[1] - mention[0], default=None))
    segments: list[Segment] = []
    start = 0
    for end in range(1, len(tokens) + 1):
        if end == len(tokens) or innermost[end] != innermost[start]:
            mention = innermost[start]
            label = "" if mention is None else str(cluster_of[mention])
            segments.append(Segment(" ".join(tokens[start:end]), label))
            start = end
    return segments


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


def texts(example: Example) -> dict[str, Sequence[Sequence[str]]]:
    """The text for the fine-tuning of a biLM."""
    return {"documents": example.sentences}


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
    texts=texts,
    missing_labels=missing_labels,
    training_examples=training_examples,
    defaults={
        "words": {"dim": 100, "tuned": True},
        "chars": {"num_filters": 50, "width": 3, "dim": 8},
        "elmo": {"penalty": 0.001, "dropout": 0.5, "place": "input"},
        "optim": {"name": "adam", "lr": 1e-3, "clip_norm": 5.0, "halve_after": 4},
        "train": {"batch_size": 1, "epochs": 60, "patience": 10},
    },
)
