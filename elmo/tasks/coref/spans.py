"""Candidate spans of a document for the coref model: enumeration, pruning, antecedents, distances and clusters.

Nothing here is learned. A span is a pair (first, last) of tokens of the document, both included.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo.tasks.token_batch import to_device

DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # lower bounds of the buckets of distances


def all_spans(lengths: Sequence[int], max_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First and last token (N,) of every span of at most max_width tokens inside a sentence, in order of the text."""
    counts = torch.tensor(lengths)  # (sentences,), on the CPU, so that the number of spans needs no synchronisation
    ends = counts.cumsum(0).repeat_interleave(counts)  # (T,): the end of the sentence of each token
    first = torch.arange(len(ends))[:, None].expand(-1, max_width)  # (T, W)
    last = first + torch.arange(max_width)  # (T, W)
    inside = last < ends[:, None]
    return to_device(first[inside], device), to_device(last[inside], device)


def prune(first: Sequence[int], last: Sequence[int], scores: Sequence[float], count: int) -> list[int]:
    """Indices of the best `count` spans, in the order of the text, without spans that cross a better one."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    selected: list[int] = []
    largest_end: dict[int, int] = {}  # of the selected spans that begin at a token
    smallest_start: dict[int, int] = {}  # of the selected spans that end at a token
    for index in order:
        if len(selected) >= count:
            break
        a, b = first[index], last[index]
        # crossing: a selected span begins inside and ends after, or ends inside and begins before
        begins_inside = any(largest_end.get(token, -1) > b for token in range(a + 1, b + 1))
        ends_inside = any(smallest_start.get(token, a) < a for token in range(a, b))
        if begins_inside or ends_inside:
            continue
        selected.append(index)
        largest_end[a] = max(largest_end.get(a, -1), b)
        smallest_start[b] = min(smallest_start.get(b, a), a)
    return sorted(selected, key=lambda index: (first[index], last[index]))


def antecedents(num_spans: int, max_antecedents: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices (M, K) of the K = min(max_antecedents, M) spans before each of M spans, nearest first, and a mask (M, K).

    The mask is false where there are fewer spans before; the index is then 0.
    """
    K = max(1, min(max_antecedents, num_spans))
    offsets = torch.arange(1, K + 1, device=device)[None]  # (1, K)
    indices = torch.arange(num_spans, device=device)[:, None] - offsets  # (M, K)
    return indices.clamp(min=0), indices >= 0


def distance_bucket(distance: Tensor) -> Tensor:
    """The buckets 0 to 8 of distances: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, and 64 or more."""
    num_bounds = torch.zeros_like(distance)
    for bound in DISTANCES:
        num_bounds += distance >= bound
    return (num_bounds - 1).clamp(min=0)


def clusters_of(links: Sequence[int]) -> list[list[int]]:
    """Clusters of linked spans; links[n] is an earlier span, or -1 for none. A span without links is in no cluster."""
    cluster_of: dict[int, int] = {}
    clusters: list[list[int]] = []
    for number, antecedent in enumerate(links):
        if antecedent < 0:
            continue
        if antecedent not in cluster_of:
            cluster_of[antecedent] = len(clusters)
            clusters.append([antecedent])
        cluster_of[number] = cluster_of[antecedent]
        clusters[cluster_of[number]].append(number)
    return clusters
