"""Paths side by side in one process, in turn, on the same sentences: medians, ratios, the share of the limit.

Bulk gives all sentences at once, single one at a time. The first round warms up and is compared with the plain path.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo.bench.roofline import operations
from elmo.bench.variants import BASELINES, Subject, Variant
from elmo.kernels.cpu.build import CannotBuild, processor_level
from elmo.progress import Progress

BULK = {"tiny": 384, "small": 192, "medium": 96, "original": 64}  # sentences
SINGLE = {"tiny": 24, "small": 24, "medium": 8, "original": 8}  # of 18 to 19 words on average, as the whole sample
FEEDS = ("bulk", "single")
Peaks = Mapping[tuple[str, str], float]  # (device, dtype) -> GFLOP/s of a large product: a thread's, or a GPU's


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one path reached."""

    size: str
    feed: str  # bulk, single
    path: str
    sentences: int
    words: int
    words_per_second: float  # median
    spread: tuple[float, float]  # lowest, highest
    times: dict[str, float] = field(default_factory=dict)  # baseline -> how many times as fast, median of the rounds
    share_of_limit: float | None
    difference_to_plain: float | None  # largest, of all layers
    peak_mb: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ratios by name: times_loop, times_allennlp_sorted and so on."""
        found = asdict(self)
        ratios = {f"times_{name.replace(' ', '_')}": value for name, value in found.pop("times").items()}
        return found | ratios


def how_many(feed: str, size: str) -> int:
    """Sentences that make a round of a few seconds."""
    return (BULK if feed == "bulk" else SINGLE).get(size, 96 if feed == "bulk" else 8)


def compare(
    subject: Subject,
    feed: str,
    sentences: Sequence[Sequence[str]],
    paths: Mapping[str, Variant],
    peaks: Peaks,
    *,
    rounds: int,
    cpu_time: bool = False,
    show: bool | None = None,
) -> list[Result]:
    """Each path once per round, in turn. `cpu_time`: that of one thread, which other processes hardly touch."""
    clock = time.process_time if cpu_time else time.perf_counter
    if feed == "single":  # nothing to sort
        paths = {name: path for name, path in paths.items() if not name.endswith("sorted")}
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    first: dict[str, list[np.ndarray]] = {}
    calls = [list(sentences)] if feed == "bulk" else [[sentence] for sentence in sentences]
    num_words = sum(map(len, sentences))
    with Progress(f"{subject.name} {feed}", (rounds + 1) * len(paths) * num_words, show=show) as progress:
        for number in range(rounds + 1):
            for name, path in paths.items():
                start = clock()
                found = [vectors for call in calls for vectors in path.embed(call)]
                if number:
                    seconds[name].append(clock() - start)
                else:
                    first[name] = found
                progress.advance(num_words)
    work = operations(subject.model.config, calls)
    results = []
    for name, times in seconds.items():
        path = paths[name]
        speeds = sorted(num_words / t for t in times)
        peak = peaks.get((path.device, path.dtype))
        limit = None if peak is None else _threads(path) * peak * 1e9 * num_words / work
        results.append(
            Result(
                size=subject.name,
                feed=feed,
                path=name,
                sentences=len(sentences),
                words=num_words,
                words_per_second=round(statistics.median(speeds), 1),
                spread=(round(speeds[0], 1), round(speeds[-1], 1)),
                times=_ratios(seconds, times),
                share_of_limit=round(statistics.median(speeds) / limit, 3) if limit else None,
                difference_to_plain=_difference(first[name], first.get("plain")),
            )
        )
    return results


def _threads(path: Variant) -> int:
    return torch.get_num_threads() if path.device == "cpu" else 1


def _ratios(seconds: Mapping[str, list[float]], times: list[float]) -> dict[str, float]:
    # round by round: what else the machine does falls on both
    ratios = {name: [a / b for a, b in zip(seconds[name], times, strict=True)] for name in BASELINES if name in seconds}
    return {name: round(statistics.median(found), 2) for name, found in ratios.items()}


def _difference(found: list[np.ndarray], truth: list[np.ndarray] | None) -> float | None:
    if truth is None:
        return None
    return float(max(np.abs(a - b).max(initial=0.0) for a, b in zip(found, truth, strict=True)))


def machine() -> dict[str, Any]:
    """What a report must name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    try:
        level = processor_level().name
    except CannotBuild as error:
        level = str(error)
    found = {"cpu": name, "threads": torch.get_num_threads(), "level": level, "torch": torch.__version__}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    if hasattr(os, "getloadavg"):
        found["load"] = [round(x, 2) for x in os.getloadavg()]
    return found
