"""Scorer of the coref task: MUC, B-cubed, CEAF-phi4, LEA, and CoNLL's average of the first three. No torch.

The metrics are those of the reference scorer (Pradhan et al. 2014, Moosavi and Strube 2016): counts are summed over
documents, mentions that only one side has are included, and of a mention that the response repeats only the first
occurrence is used. As in the literature, `key` is the gold clustering and `response` the predicted one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from elmo.errors import DataError
from elmo.tasks.coref.data import Example
from elmo.text.metrics import ScoreCounts, check_lengths, harmonic_mean

METRIC = "conll_f1"
Clusters = Sequence[Sequence[Hashable]]
Ratio = tuple[float, float]  # numerator and denominator of a precision or recall


def score(
    gold: Sequence[Example], predicted: Sequence[Iterable[Iterable[tuple[int, int]]]], *, singletons: bool = False
) -> dict[str, float]:
    """Percentages: conll_f1 (the main metric) and precision, recall and f1 of muc, b3, ceafe, lea and mentions.

    Clusters of one mention are removed from both sides, because OntoNotes has none; singletons=True includes them.
    """
    check_lengths(gold, predicted, "documents")
    pairs: list[tuple[Clusters, Clusters]] = []
    for example, response in zip(gold, predicted, strict=True):
        if example.clusters is None:
            raise DataError(f"The document {example.doc!r} has no gold clusters to score against.")
        key = [cluster for cluster in example.clusters if singletons or len(cluster) > 1]
        distinct = [cluster for cluster in _without_repeats(response) if singletons or len(cluster) > 1]
        pairs.append((key, distinct))
    scores: dict[str, float] = {}
    for name, metric in METRICS.items():
        precision, recall, f1 = evaluate(metric, pairs)
        scores |= {f"{name}_f1": f1, f"{name}_precision": precision, f"{name}_recall": recall}
    return {"conll_f1": sum(scores[f"{name}_f1"] for name in ("muc", "b3", "ceafe")) / 3, **scores}


def evaluate(
    metric: Callable[[Clusters, Clusters], tuple[Ratio, Ratio]], pairs: Iterable[tuple[Clusters, Clusters]]
) -> tuple[float, float, float]:
    """Precision, recall and F1 in percent of a metric over (key, response) pairs of documents.

    `metric` returns the recall and the precision of one document as ratios; they are summed before the division.
    """
    recall, precision = ScoreCounts(), ScoreCounts()
    for key, response in pairs:
        (correct_recall, gold), (correct_precision, predicted) = metric(key, response)
        recall.add(correct=correct_recall, gold=gold)
        precision.add(correct=correct_precision, predicted=predicted)
    return precision.precision, recall.recall, harmonic_mean(precision.precision, recall.recall)


def muc(key: Clusters, response: Clusters) -> tuple[Ratio, Ratio]:
    """Links (Vilain et al. 1995): a cluster of n mentions has n - 1, minus one per split by the other side."""
    return _muc_ratio(key, response), _muc_ratio(response, key)


def _muc_ratio(clusters: Clusters, other: Clusters) -> Ratio:
    cluster_of = _cluster_of(other)
    correct = 0
    for cluster in clusters:
        partitions = {cluster_of[mention] for mention in cluster if mention in cluster_of}
        correct += len(cluster) - len(partitions) - sum(mention not in cluster_of for mention in cluster)
    return correct, sum(len(cluster) - 1 for cluster in clusters)


def b_cubed(key: Clusters, response: Clusters) -> tuple[Ratio, Ratio]:
    """Mentions (Bagga and Baldwin 1998): for each, the share of its cluster that the other side clusters with it."""
    return _b_cubed_ratio(key, response), _b_cubed_ratio(response, key)


def _b_cubed_ratio(clusters: Clusters, other: Clusters) -> Ratio:
    cluster_of = _cluster_of(other)
    correct = 0.0
    for cluster in clusters:
        overlaps = _overlaps(cluster, cluster_of)
        correct += sum(count * count for count in overlaps) / len(cluster)
    return correct, sum(map(len, clusters))


def ceaf_phi4(key: Clusters, response: Clusters) -> tuple[Ratio, Ratio]:
    """Entities (Luo 2005): the best one-to-one alignment of clusters; a pair A, B scores 2|A & B| / (|A| + |B|)."""
    if not key or not response:
        return (0, len(key)), (0, len(response))
    sets = [set(cluster) for cluster in response]
    similarity = np.array([[2 * len(b.intersection(a)) / (len(a) + len(b)) for b in sets] for a in key])  # (keys, sets)
    total = best_alignment(similarity)
    return (total, len(key)), (total, len(response))


def lea(key: Clusters, response: Clusters) -> tuple[Ratio, Ratio]:
    """Links weighted by the size of their entity (Moosavi and Strube 2016); a singleton has one link to itself."""
    return _lea_ratio(key, response), _lea_ratio(response, key)


def _lea_ratio(clusters: Clusters, other: Clusters) -> Ratio:
    cluster_of = _cluster_of(other)
    singletons = {cluster[0] for cluster in other if len(cluster) == 1}
    correct = 0.0
    for cluster in clusters:
        if len(cluster) == 1:
            correct += cluster[0] in singletons
            continue
        links = sum(count * (count - 1) / 2 for count in _overlaps(cluster, cluster_of))
        correct += len(cluster) * links / (len(cluster) * (len(cluster) - 1) / 2)
    return correct, sum(map(len, clusters))


def mentions(key: Clusters, response: Clusters) -> tuple[Ratio, Ratio]:
    """Mentions that both sides have, in any cluster."""
    gold, predicted = ({mention for cluster in side for mention in cluster} for side in (key, response))
    return (len(gold & predicted), len(gold)), (len(gold & predicted), len(predicted))


METRICS = {"muc": muc, "b3": b_cubed, "ceafe": ceaf_phi4, "lea": lea, "mention": mentions}


def best_alignment(similarity: np.ndarray) -> float:
    """The largest sum of entries of which no two share a row or a column (Hungarian algorithm, cubic time)."""
    cost = -similarity if similarity.shape[0] <= similarity.shape[1] else -similarity.T  # (n, m), n <= m
    n, m = cost.shape
    row_of = np.full(m + 1, -1)  # the row matched to each column; column m is a dummy for the row being inserted
    row_potential, column_potential = np.zeros(n), np.zeros(m + 1)
    for row in range(n):
        row_of[m] = row
        column = m
        slack, previous, visited = np.full(m, np.inf), np.full(m, m), np.zeros(m + 1, dtype=bool)
        while row_of[column] >= 0:
            visited[column] = True
            current = row_of[column]
            reduced_cost = cost[current] - row_potential[current] - column_potential[:m]
            better = ~visited[:m] & (reduced_cost < slack)
            slack[better], previous[better] = reduced_cost[better], column
            nearest = int(np.argmin(np.where(visited[:m], np.inf, slack)))
            step = slack[nearest]
            row_potential[row_of[visited]] += step
            column_potential[visited] -= step
            slack[~visited[:m]] -= step
            column = nearest
        while column != m:  # shift the matches along the augmenting path
            row_of[column] = row_of[previous[column]]
            column = int(previous[column])
    matched = np.flatnonzero(row_of[:m] >= 0)
    return float(-cost[row_of[matched], matched].sum())


def _cluster_of(clusters: Clusters) -> dict[Hashable, int]:
    """The index of the cluster of each mention."""
    return {mention: index for index, cluster in enumerate(clusters) for mention in cluster}


def _overlaps(cluster: Sequence[Hashable], cluster_of: Mapping[Hashable, int]) -> Iterable[int]:
    """The numbers of mentions that the cluster shares with each cluster of the other side."""
    return Counter(cluster_of[mention] for mention in cluster if mention in cluster_of).values()


def _without_repeats(clusters: Iterable[Iterable[Hashable]]) -> list[list[Hashable]]:
    """The clusters with the first occurrence of each mention only; clusters that become empty are removed."""
    seen: set[Hashable] = set()
    distinct = []
    for cluster in clusters:
        new_mentions = [mention for mention in dict.fromkeys(cluster) if mention not in seen]
        seen.update(new_mentions)
        distinct.append(new_mentions)
    return [cluster for cluster in distinct if cluster]
