"""Coreference metrics: MUC, B-cubed, CEAF-phi4, LEA, and CoNLL's average of the first three. The last step; no torch.

As the reference scorer computes them (Pradhan et al. 2014, Moosavi and Strube 2016): counts are summed over documents,
mentions that only one side has stay in, a mention repeated in the response counts once, the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from elmo.errors import DataError
from elmo.tasks.coref.data import Example
from elmo.text.metrics import Counts, check_lengths, harmonic

METRIC = "conll_f1"
Clusters = Sequence[Sequence[Hashable]]
Side = tuple[float, float]  # what one side has right, and of how much


def score(
    gold: Sequence[Example], predicted: Sequence[Iterable[Iterable[tuple[int, int]]]], *, singletons: bool = False
) -> dict[str, float]:
    """Percentages: conll_f1 (the one that counts) and precision, recall and f1 of muc, b3, ceafe, lea and mentions.

    Clusters of one mention are left out on both sides, as OntoNotes has none; singletons=True keeps them.
    """
    check_lengths(gold, predicted, "documents")
    pairs: list[tuple[Clusters, Clusters]] = []
    for example, response in zip(gold, predicted, strict=True):
        if example.clusters is None:
            raise DataError(f"The document {example.doc!r} has no gold clusters to score against.")
        key = [cluster for cluster in example.clusters if singletons or len(cluster) > 1]
        found = [cluster for cluster in _without_repeats(response) if singletons or len(cluster) > 1]
        pairs.append((key, found))
    result: dict[str, float] = {}
    for name, metric in METRICS.items():
        precision, recall, f1 = evaluate(metric, pairs)
        result |= {f"{name}_f1": f1, f"{name}_precision": precision, f"{name}_recall": recall}
    return {"conll_f1": sum(result[f"{name}_f1"] for name in ("muc", "b3", "ceafe")) / 3, **result}


def evaluate(
    metric: Callable[[Clusters, Clusters], tuple[Side, Side]], pairs: Iterable[tuple[Clusters, Clusters]]
) -> tuple[float, float, float]:
    """Precision, recall and F1 in percent of a metric over (key, response) pairs of documents."""
    recall, precision = Counts(), Counts()
    for key, response in pairs:
        (right_r, wanted), (right_p, found) = metric(key, response)
        recall.add(right=right_r, wanted=wanted)
        precision.add(right=right_p, found=found)
    return precision.precision, recall.recall, harmonic(precision.precision, recall.recall)


def muc(key: Clusters, response: Clusters) -> tuple[Side, Side]:
    """Links (Vilain et al. 1995): a cluster of n mentions needs n - 1, less one for each piece the other side cuts."""
    return _muc_side(key, response), _muc_side(response, key)


def _muc_side(clusters: Clusters, other: Clusters) -> Side:
    home = _homes(other)
    right = 0
    for cluster in clusters:
        pieces = {home[mention] for mention in cluster if mention in home}
        right += len(cluster) - len(pieces) - sum(mention not in home for mention in cluster)
    return right, sum(len(cluster) - 1 for cluster in clusters)


def b_cubed(key: Clusters, response: Clusters) -> tuple[Side, Side]:
    """Mentions (Bagga and Baldwin 1998): the share of a mention's cluster that the other side puts with it."""
    return _b_cubed_side(key, response), _b_cubed_side(response, key)


def _b_cubed_side(clusters: Clusters, other: Clusters) -> Side:
    home = _homes(other)
    right = 0.0
    for cluster in clusters:
        shared: dict[int, int] = {}
        for mention in cluster:
            if mention in home:
                shared[home[mention]] = shared.get(home[mention], 0) + 1
        right += sum(count * count for count in shared.values()) / len(cluster)
    return right, sum(map(len, clusters))


def ceaf_phi4(key: Clusters, response: Clusters) -> tuple[Side, Side]:
    """Entities (Luo 2005): the best one-to-one alignment of clusters, each pair worth 2|A & B| / (|A| + |B|)."""
    if not key or not response:
        return (0, len(key)), (0, len(response))
    sets = [set(cluster) for cluster in response]
    worth = np.array([[2 * len(b.intersection(a)) / (len(a) + len(b)) for b in sets] for a in key])  # (keys, responses)
    total = best_alignment(worth)
    return (total, len(key)), (total, len(response))


def lea(key: Clusters, response: Clusters) -> tuple[Side, Side]:
    """Links weighted by the size of their entity (Moosavi and Strube 2016); a lone mention has a link to itself."""
    return _lea_side(key, response), _lea_side(response, key)


def _lea_side(clusters: Clusters, other: Clusters) -> Side:
    home = _homes(other)
    alone = {cluster[0] for cluster in other if len(cluster) == 1}
    right = 0.0
    for cluster in clusters:
        if len(cluster) == 1:
            right += cluster[0] in alone
            continue
        shared: dict[int, int] = {}
        for mention in cluster:
            if mention in home:
                shared[home[mention]] = shared.get(home[mention], 0) + 1
        links = sum(count * (count - 1) / 2 for count in shared.values())
        right += len(cluster) * links / (len(cluster) * (len(cluster) - 1) / 2)
    return right, sum(map(len, clusters))


def mentions(key: Clusters, response: Clusters) -> tuple[Side, Side]:
    """How many of the mentions were found at all, whatever cluster they are in."""
    wanted, found = ({mention for cluster in side for mention in cluster} for side in (key, response))
    return (len(wanted & found), len(wanted)), (len(wanted & found), len(found))


METRICS = {"muc": muc, "b3": b_cubed, "ceafe": ceaf_phi4, "lea": lea, "mention": mentions}


def best_alignment(worth: np.ndarray) -> float:
    """The largest sum of entries of which no two share a row or a column (Kuhn and Munkres, in n cubed)."""
    cost = -worth if worth.shape[0] <= worth.shape[1] else -worth.T  # (n, m), n <= m
    n, m = cost.shape
    row_of = np.full(m + 1, -1)  # the row matched to each column; column m stands for the row being placed
    of_rows, of_columns = np.zeros(n), np.zeros(m + 1)  # potentials
    for row in range(n):
        row_of[m] = row
        column = m
        slack, came_from, done = np.full(m, np.inf), np.full(m, m), np.zeros(m + 1, dtype=bool)
        while row_of[column] >= 0:
            done[column] = True
            here = row_of[column]
            reduced = cost[here] - of_rows[here] - of_columns[:m]
            better = ~done[:m] & (reduced < slack)
            slack[better], came_from[better] = reduced[better], column
            nearest = int(np.argmin(np.where(done[:m], np.inf, slack)))
            step = slack[nearest]
            of_rows[row_of[done]] += step
            of_columns[done] -= step
            slack[~done[:m]] -= step
            column = nearest
        while column != m:
            row_of[column] = row_of[came_from[column]]
            column = int(came_from[column])
    matched = np.flatnonzero(row_of[:m] >= 0)
    return float(-cost[row_of[matched], matched].sum())


def _homes(clusters: Clusters) -> dict[Hashable, int]:
    return {mention: place for place, cluster in enumerate(clusters) for mention in cluster}


def _without_repeats(clusters: Iterable[Iterable[Hashable]]) -> list[list[Hashable]]:
    seen: set[Hashable] = set()
    result = []
    for cluster in clusters:
        kept = [mention for mention in dict.fromkeys(cluster) if mention not in seen]
        seen.update(kept)
        result.append(kept)
    return [cluster for cluster in result if cluster]
