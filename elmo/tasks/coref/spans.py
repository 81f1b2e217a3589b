"""Spans of a document: which there are, which are kept, how far they stand apart. Whole numbers, nothing learned.

Stands before the networks of the coref model. Spans are (first, last) tokens of the document, both included.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo.tasks.token_batch import to_device

DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # a distance falls into the last bucket whose bound it reaches


def all_spans(lengths: Sequence[int], max_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First and last token (N,) of every span inside one sentence of at most max_width tokens, in order of the text."""
    counts = torch.tensor(lengths)  # (sentences,); on the CPU, where the number of spans need not be waited for
    ends = counts.cumsum(0).repeat_interleave(counts)  # (T,): where each token's sentence ends
    first = torch.arange(len(ends))[:, None].expand(-1, max_width)  # (T, W)
    last = first + torch.arange(max_width)  # (T, W)
    inside = last < ends[:, None]
    return to_device(first[inside], device), to_device(last[inside], device)


def prune(first: Sequence[int], last: Sequence[int], scores: Sequence[float], count: int) -> list[int]:
    """The places of the best `count` spans, in order of the text, leaving out what crosses a better one."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    kept: list[int] = []
    furthest: dict[int, int] = {}  # of the kept spans that begin at a token, the largest end
    nearest: dict[int, int] = {}  # of the kept spans that end at a token, the smallest beginning
    for place in order:
        if len(kept) >= count:
            break
        a, b = first[place], last[place]
        # crossing: a kept span begins inside and ends beyond, or ends inside and begins before
        begins_inside = any(furthest.get(token, -1) > b for token in range(a + 1, b + 1))
        ends_inside = any(nearest.get(token, a) < a for token in range(a, b))
        if begins_inside or ends_inside:
            continue
        kept.append(place)
        furthest[a] = max(furthest.get(a, -1), b)
        nearest[b] = min(nearest.get(b, a), a)
    return sorted(kept, key=lambda place: (first[place], last[place]))


def antecedents(num_spans: int, most: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each span (M,) the numbers of the up to K = min(most, M) spans before it, nearest first, (M, K), and which
    of them there are, (M, K)."""
    K = max(1, min(most, num_spans))
    back = torch.arange(1, K + 1, device=device)[None]  # (1, K)
    numbers = torch.arange(num_spans, device=device)[:, None] - back  # (M, K)
    return numbers.clamp(min=0), numbers >= 0


def distance_bucket(distance: Tensor) -> Tensor:
    """1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64 and more as 0 to 8."""
    reached = torch.zeros_like(distance)
    for bound in DISTANCES:
        reached += distance >= bound
    return (reached - 1).clamp(min=0)


def clusters_of(links: Sequence[int]) -> list[list[int]]:
    """Spans joined along their links: links[n] is an earlier span, or -1 for none. Lone spans are no cluster."""
    home: dict[int, int] = {}
    clusters: list[list[int]] = []
    for number, target in enumerate(links):
        if target < 0:
            continue
        if target not in home:
            home[target] = len(clusters)
            clusters.append([target])
        home[number] = home[target]
        clusters[home[number]].append(number)
    return clusters
