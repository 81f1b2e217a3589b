"""Comparison of variants in one process on the same sentences: median speeds, ratios, and shares of the roofline.

The variants take turns in every round. Feed "bulk" passes all sentences in one call, "single" one sentence per call.
The first round is the warm-up; its vectors are compared with those of the plain variant.
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

from elmo.bench.roofline import count_operations
from elmo.bench.variants import BASELINES, Subject, Variant
from elmo.kernels.cpu.levels import CannotBuild, processor_level
from elmo.progress import Progress

BULK = {"tiny": 384, "small": 192, "medium": 96, "original": 64}  # sentences per round
SINGLE = {"tiny": 24, "small": 24, "medium": 8, "original": 8}  # with 18 to 19 words on average, as in the whole sample
FEEDS = ("bulk", "single")
Peaks = Mapping[tuple[str, str], float]  # (device, dtype) -> GFLOP/s of a large product: per CPU thread, or per GPU


@dataclass(frozen=True, kw_only=True)
class Result:
    """The measured speed of one variant."""

    size: str
    feed: str  # bulk, single
    variant: str
    sentences: int
    words: int
    words_per_second: float  # median
    spread: tuple[float, float]  # lowest, highest
    times: dict[str, float] = field(default_factory=dict)  # baseline -> speed relative to it, median over the rounds
    share_of_limit: float | None  # fraction of the roofline
    difference_to_plain: float | None  # largest absolute difference in all layers
    peak_mb: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON values; the variant is called "path", and the ratios are times_loop, times_allennlp_sorted and so on."""
        values = {"path" if key == "variant" else key: value for key, value in asdict(self).items()}
        ratios = {f"times_{name.replace(' ', '_')}": value for name, value in values.pop("times").items()}
        return values | ratios


def default_sentence_count(feed: str, size: str) -> int:
    """The number of sentences for which a round takes a few seconds."""
    return (BULK if feed == "bulk" else SINGLE).get(size, 96 if feed == "bulk" else 8)


def compare(
    subject: Subject,
    feed: str,
    sentences: Sequence[Sequence[str]],
    variants: Mapping[str, Variant],
    peaks: Peaks,
    *,
    rounds: int,
    cpu_time: bool = False,
    show: bool | None = None,
) -> list[Result]:
    """Runs every variant once per round, in turn.

    `cpu_time` measures the CPU time of this process instead of wall-clock time; other processes hardly influence it.
    """
    clock = time.process_time if cpu_time else time.perf_counter
    if feed == "single":  # a single sentence cannot be sorted
        variants = {name: variant for name, variant in variants.items() if not name.endswith("sorted")}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    warmup_vectors: dict[str, list[np.ndarray]] = {}
    calls = [list(sentences)] if feed == "bulk" else [[sentence] for sentence in sentences]
    num_words = sum(map(len, sentences))
    with Progress(f"{subject.name} {feed}", (rounds + 1) * len(variants) * num_words, show=show) as progress:
        for number in range(rounds + 1):
            for name, variant in variants.items():
                start = clock()
                vectors = [layers for call in calls for layers in variant.embed(call)]
                if number:
                    seconds[name].append(clock() - start)
                else:
                    warmup_vectors[name] = vectors
                progress.advance(num_words)
    num_operations = count_operations(subject.model.config, calls)
    results = []
    for name, times in seconds.items():
        variant = variants[name]
        speeds = sorted(num_words / t for t in times)
        peak = peaks.get((variant.device, variant.dtype))
        roofline = None if peak is None else _num_threads(variant) * peak * 1e9 * num_words / num_operations
        results.append(
            Result(
                size=subject.name,
                feed=feed,
                variant=name,
                sentences=len(sentences),
                words=num_words,
                words_per_second=round(statistics.median(speeds), 1),
                spread=(round(speeds[0], 1), round(speeds[-1], 1)),
                times=_ratios(seconds, times),
                share_of_limit=round(statistics.median(speeds) / roofline, 3) if roofline else None,
                difference_to_plain=_max_difference(warmup_vectors[name], warmup_vectors.get("plain")),
            )
        )
    return results


def _num_threads(variant: Variant) -> int:
    return torch.get_num_threads() if variant.device == "cpu" else 1


def _ratios(seconds: Mapping[str, list[float]], times: list[float]) -> dict[str, float]:
    # per round, because other load on the machine affects both variants of a round
    ratios = {name: [a / b for a, b in zip(seconds[name], times, strict=True)] for name in BASELINES if name in seconds}
    return {name: round(statistics.median(values), 2) for name, values in ratios.items()}


def _max_difference(vectors: list[np.ndarray], reference: list[np.ndarray] | None) -> float | None:
    if reference is None:
        return None
    return float(max(np.abs(a - b).max(initial=0.0) for a, b in zip(vectors, reference, strict=True)))


def describe_machine() -> dict[str, Any]:
    """The hardware, thread count and torch version that a report must name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    try:
        level = processor_level().name
    except CannotBuild as error:
        level = str(error)
    machine = {"cpu": name, "threads": torch.get_num_threads(), "level": level, "torch": torch.__version__}
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name()
    if hasattr(os, "getloadavg"):
        machine["load"] = [round(x, 2) for x in os.getloadavg()]
    return machine
