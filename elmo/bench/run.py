"""A complete measurement from its configuration: models, sentences, variants, roofline, memory, and its JSON record."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from elmo.bench.compare import FEEDS, Result, compare, default_sentence_count, describe_machine
from elmo.bench.growth import Growth, measure_growth
from elmo.bench.memory import peak_memory
from elmo.bench.roofline import product_peak
from elmo.bench.sample import sample_sentences
from elmo.bench.variants import DTYPES, Subject, loaded_subject, make_embedder, make_variants, random_subject
from elmo.errors import ConfigError
from elmo.model.config import PRESETS
from elmo.records import make_record

UNLIMITED = 1 << 62  # sentences


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Settings of a measurement."""

    sizes: Sequence[str] = ("small",)  # presets, with random weights
    model: str = ""  # instead of sizes: a model's name, folder or file
    text: Path | None = None  # one sentence per line; None = Python's language reference
    tokenizer: str = "default"
    dtypes: Sequence[str] = DTYPES
    paths: Sequence[str] = ()  # names of variants; empty = all
    feeds: Sequence[str] = FEEDS
    sentences: int | None = None  # None = the default for the size
    rounds: int = 3
    quick: bool = False  # half of the default number of sentences
    memory: bool = False  # also measure peak memory, in one process per variant
    cpu_time: bool = False  # CPU time of one thread instead of wall-clock time: for a machine with other load

    def __post_init__(self) -> None:
        for name, values, choices in (("dtype", self.dtypes, DTYPES), ("feed", self.feeds, FEEDS)):
            if wrong := [value for value in values if value not in choices] or ["nothing"] * (not values):
                raise ConfigError(f"{name} is {wrong[0]!r}; expected some of {', '.join(choices)}.")
        if self.cpu_time and torch.get_num_threads() > 1:
            raise ConfigError(
                f"CPU time of {torch.get_num_threads()} threads is not meaningful.", "Measure with one thread."
            )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Results of all variants, and the measured peaks that the roofline is based on."""

    results: list[Result] = field(default_factory=list)
    peaks: dict[tuple[str, str], float] = field(default_factory=dict)  # (device, dtype) -> GFLOP/s of a large product

    def as_record(self, command: str | None = None) -> dict[str, Any]:
        """The JSON record, with the machine; `command` is the command line that measured it."""
        peaks = {f"{device} {dtype}": peak for (device, dtype), peak in self.peaks.items()}
        results = [result.as_dict() for result in self.results]
        values = {"machine": describe_machine(), "gflops": peaks, "results": results}
        return make_record("bench", values, command=command)


def run_comparison(config: BenchConfig, *, show: bool | None = None) -> Comparison:
    """Measures every variant with every model and feed."""
    comparison = Comparison()
    for subject in _subjects(config):
        variants = make_variants(subject, config.dtypes)
        if unknown := [name for name in config.paths if name not in variants]:
            raise ConfigError(f"There is no path {unknown[0]!r} here.", f"Available paths: {', '.join(variants)}.")
        variants = {name: variant for name, variant in variants.items() if not config.paths or name in config.paths}
        for variant in variants.values():
            if (variant.device, variant.dtype) not in comparison.peaks:
                comparison.peaks[variant.device, variant.dtype] = product_peak(variant.dtype, variant.device)
        for feed in config.feeds:
            count = default_sentence_count(feed, subject.name) // (2 if config.quick and feed == "bulk" else 1)
            sentences = sample_sentences(config.sentences or count, config.text, tokenizer_name=config.tokenizer)
            results = compare(
                subject,
                feed,
                sentences,
                variants,
                comparison.peaks,
                rounds=config.rounds,
                cpu_time=config.cpu_time,
                show=show,
            )
            measures_memory = config.memory and feed == "bulk" and subject.name in PRESETS
            comparison.results.extend(_with_memory(r, sentences) if measures_memory else r for r in results)
    return comparison


def run_growth(config: BenchConfig, *, seconds: float, show: bool | None = None) -> dict[str, Growth]:
    """Measures how cost grows, for the first model and dtype, with the fastest kernels."""
    sentences = sample_sentences(UNLIMITED, config.text, tokenizer_name=config.tokenizer)
    embedder = make_embedder(_subjects(config)[0], "", config.dtypes[0])
    return measure_growth(embedder, sentences, seconds=seconds, cpu_time=config.cpu_time, show=show)


def growth_record(config: BenchConfig, growths: dict[str, Growth], command: str | None = None) -> dict[str, Any]:
    """The JSON record of `run_growth`, with the machine; `command` is the command line that measured it."""
    values = {
        "machine": describe_machine(),
        "size": config.model or config.sizes[0],
        "dtype": config.dtypes[0],
        "growth": {name: dataclasses.asdict(growth) for name, growth in growths.items()},
    }
    return make_record("bench", values, command=command)


def _subjects(config: BenchConfig) -> list[Subject]:
    return [loaded_subject(config.model)] if config.model else [random_subject(size) for size in config.sizes]


def _with_memory(result: Result, sentences: Sequence[Sequence[str]]) -> Result:
    if result.variant.startswith("allennlp"):  # a child process would not have its import set-up
        return result
    return dataclasses.replace(
        result, peak_mb=peak_memory(result.size, result.variant, sentences, torch.get_num_threads())
    )
