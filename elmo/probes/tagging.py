"""Linear probes for tags: part of speech on a treebank, named entities on an IOB2 corpus (paper Table 6).

One pass over each split computes the vectors of all layers; the classifiers of all views are trained together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from elmo.probes.features import corpus_vectors
from elmo.probes.linear import FitConfig, fit
from elmo.probes.record import probe_record
from elmo.probes.tagged_sentences import SPLITS, TaggedSentence, find_splits, read_tagged
from elmo.probes.vector_source import VectorSource
from elmo.text.metrics import accuracy, span_counts


def probe_tags(
    source: VectorSource,
    paths: Sequence[str | Path],
    *,
    column: str,  # xpos, upos, iob
    config: FitConfig | None = None,
    limit: int | None = None,  # sentences per split
    cache: Path | None = None,
    device: str = "cpu",
    show: bool | None = None,
) -> dict[str, Any]:
    """Returns a record with the dev and test score of each view, in percent: accuracy, or span F1 for column iob."""
    config = config or FitConfig()
    files = find_splits(paths)
    data = {split: read_tagged(files[split], column, limit=limit) for split in SPLITS}
    labels = sorted({tag for sentence in data["train"] for tag in sentence.tags})
    label_ids = {tag: label_id for label_id, tag in enumerate(labels)}
    features = {
        split: corpus_vectors(
            source, [s.tokens for s in data[split]], cache=cache, label=f"embedding {split}", show=show
        )
        for split in SPLITS
    }
    targets = np.array([label_ids[tag] for sentence in data["train"] for tag in sentence.tags])

    def dev_score(predictions: np.ndarray) -> float:
        return tag_scores([labels[label_id] for label_id in predictions], data["dev"], column)["score"]

    fitted_views = fit(
        (features["train"], targets), features["dev"], features["test"], len(labels), dev_score, config,
        device=device, show=show,
    )  # fmt: skip
    views = {
        fitted.view: {
            "dev": fitted.dev,
            "test": (scores := tag_scores([labels[n] for n in fitted.predictions], data["test"], column))["score"],
            "epoch": fitted.epoch,
            **{name: value for name, value in scores.items() if name != "score"},
            **({"layer_weights": fitted.layer_weights} if fitted.layer_weights is not None else {}),
        }
        for fitted in fitted_views
    }
    baseline = {
        split: tag_scores(_most_frequent_tags(data["train"], data[split]), data[split], column)["score"]
        for split in SPLITS[1:]
    }
    return probe_record(
        kind="ner" if column == "iob" else "pos",
        source=source,
        files=files,
        settings={"column": column, "limit": limit, **vars(config)},
        counts={
            "labels": len(labels),
            **{f"{split}_{unit}": size for split in SPLITS for unit, size in _sizes(data[split]).items()},
        },
        scores={"metric": "span F1" if column == "iob" else "accuracy", "views": views, "most_frequent_tag": baseline},
    )


def tag_scores(tags: Sequence[str], sentences: Sequence[TaggedSentence], column: str) -> dict[str, float]:
    """The score of the predicted tags of all words, in percent; for spans also precision and recall."""
    if column != "iob":
        return {"score": accuracy([tag for sentence in sentences for tag in sentence.tags], tags)}
    ends = np.cumsum([0, *(len(sentence.tags) for sentence in sentences)])
    predicted = [tags[begin:end] for begin, end in pairwise(ends)]
    counts = span_counts([sentence.tags for sentence in sentences], predicted)
    return {"score": counts.f1, "precision": counts.precision, "recall": counts.recall}


def _most_frequent_tags(train: Sequence[TaggedSentence], sentences: Sequence[TaggedSentence]) -> list[str]:
    """Each word's most frequent tag in the training data; for unknown words the most frequent tag of all."""
    tag_counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
            tag_counts[token][tag] += 1
    most_frequent = {token: counts.most_common(1)[0][0] for token, counts in tag_counts.items()}
    fallback = sum(tag_counts.values(), Counter[str]()).most_common(1)[0][0]
    return [most_frequent.get(token, fallback) for sentence in sentences for token in sentence.tokens]


def _sizes(sentences: Sequence[TaggedSentence]) -> dict[str, int]:
    return {"sentences": len(sentences), "words": sum(len(sentence.tokens) for sentence in sentences)}
