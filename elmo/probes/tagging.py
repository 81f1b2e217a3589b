"""Linear probes for tags: part of speech on a treebank, named entities on an IOB2 corpus (paper table 6).

One pass over each split gives the vectors of all layers; every view of them is fitted together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from elmo.probes.features import gather
from elmo.probes.linear import FitConfig, fit
from elmo.probes.record import make_record
from elmo.probes.scores import accuracy, span_score
from elmo.probes.tagged_sentences import SPLITS, Tagged, find_splits, read_tagged
from elmo.probes.vector_source import VectorSource


def probe_tags(
    source: VectorSource,
    paths: Sequence[str | Path],
    *,
    column: str,  # xpos, upos, iob
    config: FitConfig | None = None,
    limit: int | None = None,  # sentences a split
    cache: Path | None = None,
    device: str = "cpu",
    show: bool | None = None,
) -> dict[str, Any]:
    """A record with each view's score on dev and test, in percent: accuracy, or span F1 for column iob."""
    config = config or FitConfig()
    files = find_splits(paths)
    data = {split: read_tagged(files[split], column, limit=limit) for split in SPLITS}
    labels = sorted({tag for sentence in data["train"] for tag in sentence.tags})
    number = {tag: row for row, tag in enumerate(labels)}
    features = {
        split: gather(source, [s.tokens for s in data[split]], cache=cache, label=f"embedding {split}", show=show)
        for split in SPLITS
    }
    targets = np.array([number[tag] for sentence in data["train"] for tag in sentence.tags])

    def dev_score(guesses: np.ndarray) -> float:
        return tag_scores([labels[guess] for guess in guesses], data["dev"], column)["score"]

    fitted = fit(
        (features["train"], targets), features["dev"], features["test"], len(labels), dev_score, config,
        device=device, show=show,
    )  # fmt: skip
    views = {
        one.view: {
            "dev": one.dev,
            "test": (scores := tag_scores([labels[guess] for guess in one.predictions], data["test"], column))["score"],
            "epoch": one.epoch,
            **{name: value for name, value in scores.items() if name != "score"},
            **({"layer_weights": one.layer_weights} if one.layer_weights is not None else {}),
        }
        for one in fitted
    }
    baseline = {
        split: tag_scores(_usual_tags(data["train"], data[split]), data[split], column)["score"] for split in SPLITS[1:]
    }
    return make_record(
        kind="ner" if column == "iob" else "pos",
        source=source,
        files=files,
        settings={"column": column, "limit": limit, **vars(config)},
        counts={
            "labels": len(labels),
            **{f"{split}_{what}": size for split in SPLITS for what, size in _sizes(data[split]).items()},
        },
        scores={"metric": "span F1" if column == "iob" else "accuracy", "views": views, "usual_tag": baseline},
    )


def tag_scores(tags: Sequence[str], sentences: Sequence[Tagged], column: str) -> dict[str, float]:
    """The score of tags given word by word, and for spans its parts; in percent."""
    if column != "iob":
        return {"score": accuracy(tags, [tag for sentence in sentences for tag in sentence.tags])}
    ends = np.cumsum([0, *(len(sentence.tags) for sentence in sentences)])
    guessed = [tags[begin:end] for begin, end in pairwise(ends)]
    found = span_score(guessed, [sentence.tags for sentence in sentences])
    return {"score": found.f1, "precision": found.precision, "recall": found.recall}


def _usual_tags(train: Sequence[Tagged], sentences: Sequence[Tagged]) -> list[str]:
    """Each word's most frequent tag in training, without its context; the most frequent of all for new words."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
            seen[token][tag] += 1
    usual = {token: counts.most_common(1)[0][0] for token, counts in seen.items()}
    other = sum(seen.values(), Counter[str]()).most_common(1)[0][0]
    return [usual.get(token, other) for sentence in sentences for token in sentence.tokens]


def _sizes(sentences: Sequence[Tagged]) -> dict[str, int]:
    return {"sentences": len(sentences), "words": sum(len(sentence.tokens) for sentence in sentences)}
