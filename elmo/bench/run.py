"""A whole measurement from its settings: models, sentences, paths, the limit, memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from elmo.bench.compare import FEEDS, Result, compare, how_many, machine
from elmo.bench.growth import Growth, growth
from elmo.bench.roofline import product_peak
from elmo.bench.memory import peak_memory
from elmo.bench.sample import sentences_for
from elmo.bench.variants import DTYPES, Subject, loaded_subject, make_embedder, random_subject, variants_of
from elmo.errors import ConfigError
from elmo.model.config import PRESETS

ALL_THERE_ARE = 1 << 62


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What is to be measured."""

    sizes: Sequence[str] = ("small",)  # presets, with random weights
    model: str = ""  # instead of sizes: a model's name, folder or file
    text: Path | None = None  # a sentence a line; None: prose that Python carries
    tokenizer: str = "default"
    dtypes: Sequence[str] = DTYPES
    paths: Sequence[str] = ()  # by name; none: all there are
    feeds: Sequence[str] = FEEDS
    sentences: int | None = None  # None: enough for the size
    rounds: int = 3
    quick: bool = False  # half of the sentences, where their number is not given
    memory: bool = False  # peak memory too, a process for each path
    cpu_time: bool = False  # of one thread, instead of the clock's: for a machine that does other things

    def __post_init__(self) -> None:
        for name, asked, known in (("dtype", self.dtypes, DTYPES), ("feed", self.feeds, FEEDS)):
            if wrong := [one for one in asked if one not in known] or ["nothing"] * (not asked):
                raise ConfigError(f"{name} is {wrong[0]!r}; expected some of {', '.join(known)}.")
        if self.cpu_time and torch.get_num_threads() > 1:
            raise ConfigError(f"CPU time of {torch.get_num_threads()} threads says little.", "Measure with one thread.")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What came of it."""

    results: list[Result] = field(default_factory=list)
    peaks: dict[tuple[str, str], float] = field(default_factory=dict)  # (device, dtype) -> GFLOP/s of a large product

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with the machine."""
        peaks = {f"{device} {dtype}": peak for (device, dtype), peak in self.peaks.items()}
        return {"machine": machine(), "gflops": peaks, "results": [result.as_dict() for result in self.results]}


def run_comparison(config: BenchConfig, *, show: bool | None = None) -> Comparison:
    """Every path on every model, both ways of feeding it."""
    done = Comparison()
    for subject in _subjects(config):
        paths = variants_of(subject, config.dtypes)
        if unknown := [name for name in config.paths if name not in paths]:
            raise ConfigError(f"There is no path {unknown[0]!r} here.", f"There are: {', '.join(paths)}.")
        paths = {name: path for name, path in paths.items() if not config.paths or name in config.paths}
        for path in paths.values():
            if (path.device, path.dtype) not in done.peaks:
                done.peaks[path.device, path.dtype] = product_peak(path.dtype, path.device)
        for feed in config.feeds:
            count = how_many(feed, subject.name) // (2 if config.quick and feed == "bulk" else 1)
            sentences = sentences_for(config.sentences or count, config.text, tokenizer_name=config.tokenizer)
            found = compare(
                subject, feed, sentences, paths, done.peaks, rounds=config.rounds, cpu_time=config.cpu_time, show=show
            )
            with_peak = config.memory and feed == "bulk" and subject.name in PRESETS
            done.results.extend(_with_memory(result, sentences) if with_peak else result for result in found)
    return done


def run_growth(config: BenchConfig, *, seconds: float, show: bool | None = None) -> dict[str, Growth]:
    """How cost grows, for the first model and dtype, through the fastest path."""
    sentences = sentences_for(ALL_THERE_ARE, config.text, tokenizer_name=config.tokenizer)
    embedder = make_embedder(_subjects(config)[0], "", config.dtypes[0])
    return growth(embedder, sentences, seconds=seconds, cpu_time=config.cpu_time, show=show)


def growth_report(config: BenchConfig, grown: dict[str, Growth]) -> dict[str, Any]:
    """Plain data, with the machine."""
    what = {"size": config.model or config.sizes[0], "dtype": config.dtypes[0]}
    return {"machine": machine(), **what, "growth": {name: dataclasses.asdict(one) for name, one in grown.items()}}


def _subjects(config: BenchConfig) -> list[Subject]:
    return [loaded_subject(config.model)] if config.model else [random_subject(size) for size in config.sizes]


def _with_memory(result: Result, sentences: Sequence[Sequence[str]]) -> Result:
    if result.path.startswith("allennlp"):  # its set-up is this process's alone
        return result
    return dataclasses.replace(
        result, peak_mb=peak_memory(result.size, result.path, sentences, torch.get_num_threads())
    )
