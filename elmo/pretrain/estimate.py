"""Estimates parameters, tokens per epoch, memory and time of a run from a sample of its text (`--dry-run`)."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elmo.devices import choose_device, free_memory
from elmo.files import COMPRESSED
from elmo.model.config import num_parameters
from elmo.pretrain.config import RunConfig, model_config_for_vocab
from elmo.pretrain.data.corpus import read_sentences
from elmo.pretrain.data.languages import Language, sample_languages
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import open_prepared
from elmo.pretrain.data.sources import Source, find_sources
from elmo.pretrain.data.text_files import find_text, missing_heldout
from elmo.pretrain.data.vocabulary import read_vocabulary
from elmo.pretrain.duration import (
    TextSize,
    describe_duration,
    describe_presets,
    estimate_durations,
    first_step,
    last_step,
    prepared_size,
    run_name,
)
from elmo.pretrain.memory import checkpoint_bytes, training_memory
from elmo.pretrain.train.heap_memory import freed_memory_kept
from elmo.pretrain.train.step_timing import Clock

SAMPLE_SENTENCES = 20_000
COMPRESSION_RATIO = 3.5  # bytes of text per byte of a compressed file


@dataclass(frozen=True)
class _Text:
    """The training text: its files, and its size, which is exact for prepared text and otherwise estimated."""

    num_files: int
    num_bytes: float
    size: TextSize
    languages: tuple[Language, ...] = ()


def estimate(config: RunConfig, out: Path, *, continued: bool = False, clock: Clock = time.perf_counter) -> str:
    """The plan of a run as text.

    Token counts are extrapolated by bytes from the first sentences, or those of the prepared text of a run that is
    `continued`. The time comes from training steps, which are measured with `clock` for about two seconds.
    """
    is_prepared = continued and (out / "data").exists()
    text = _prepared_text(out / "data") if is_prepared else _sampled_text(config.data)
    warnings = [] if is_prepared else missing_heldout(config.data)
    size, train, device = text.size, config.train, choose_device(config.train.device)
    model = model_config_for_vocab(config, size.vocab_size)
    steps, first = last_step(config, size), first_step(out)
    parameters, softmax = num_parameters(model), num_parameters(model, head=True) - num_parameters(model)
    free = shutil.disk_usage(out.parent if out.parent.exists() else Path(".")).free
    lines = [
        *(f"warning: {warning}" for warning in warnings),
        *_describe_languages(text.languages, config.data.temperature),
        f"text        {text.num_files} files, {text.num_bytes / 1e6:,.1f} MB, about {size.positions:,} tokens per "
        "epoch",
        f"vocabulary  about {size.vocab_size:,} words (at most {config.data.max_vocab or 'all'})",
        f"model       {parameters:,} parameters + {softmax:,} softmax; vectors of {model.dim}",
        f"run         {steps:,} steps of {train.rows} x {train.steps} tokens = "
        f"{steps * train.rows * train.steps / max(size.positions, 1):.1f} epochs; recipe {config.recipe}, "
        f"seed {train.seed}",
        *_time_lines(config, size, device, first, clock),
        f"memory      about {_format_bytes(training_memory(config, model))}, {_format_bytes(free_memory(device))} free "
        "(--set train.accumulate=2 reduces the memory of activations)",
        f"disk        about {_format_bytes(checkpoint_bytes(config, model))} of checkpoints in {out}, "
        f"{_format_bytes(free)} free",
        "Nothing was written. The same command without --dry-run starts or continues the run.",
    ]
    return "\n".join(lines)


def _time_lines(config: RunConfig, size: TextSize, device: str, first: int, clock: Clock) -> list[str]:
    """The speed and the duration of the run; for a run that has not started, also those of the other presets."""
    num_steps_left = last_step(config, size) - first
    if num_steps_left <= 0:
        return [f"device      {device}; the run in this folder has made all of its steps"]
    is_resumed = first > 0
    presets_above = None if is_resumed else 0.0
    with freed_memory_kept(device):  # as in the run
        durations = estimate_durations(config, size, device, num_steps_left, presets_above=presets_above, clock=clock)
    own_name = run_name(config)
    lines = [f"device      {device}, {describe_duration(config, durations[own_name], is_resumed=is_resumed)}"]
    return lines if is_resumed else [*lines, f"presets     {describe_presets(durations, own_name)}"]


def _prepared_text(folder: Path) -> _Text:
    data = open_prepared(folder)
    sources = [source for source in data.manifest["sources"] if source["split"] == "train"]
    num_bytes = sum(source["size"] for source in sources)
    return _Text(len(sources), num_bytes, prepared_size(data), data.languages)


def _describe_languages(languages: Sequence[Language], temperature: float) -> list[str]:
    if not languages:
        return []
    shares = ", ".join(f"{one.name} {one.share:.1%} (x {one.repetitions:.2f})" for one in languages)
    return [f"languages   {len(languages)}, temperature {temperature:g}; share of an epoch (repetitions): {shares}"]


def _sampled_text(data: PrepareConfig) -> _Text:
    find_text(data)  # files that do not fit together are an error now
    if not data.languages:
        return _sampled_files(data, data.files, SAMPLE_SENTENCES)
    num_sentences = max(1, SAMPLE_SENTENCES // len(data.languages))
    texts = {name: _sampled_files(data, files, num_sentences) for name, files in data.languages.items()}
    sizes = {name: text.size.positions for name, text in texts.items()}
    return _Text(
        sum(text.num_files for text in texts.values()),
        sum(text.num_bytes for text in texts.values()),
        TextSize(
            sum(sizes.values()),
            sum(text.size.heldout_positions for text in texts.values()),
            min(data.max_vocab or 1 << 30, sum(text.size.vocab_size for text in texts.values())),
        ),
        sample_languages(sizes, data.temperature),
    )


def _sampled_files(data: PrepareConfig, files: Sequence[str], max_sentences: int) -> _Text:
    sources = find_sources(files)
    sentences = list(islice(read_sentences(files, data.reading), max_sentences))
    sample_bytes = sum(len(token.encode()) + 1 for sentence in sentences for token in sentence)
    total_bytes = _num_bytes(sources)
    is_sample = len(sentences) == max_sentences
    scale = max(1.0, total_bytes / max(sample_bytes, 1)) if is_sample else 1.0
    sample_positions = sum(map(len, sentences)) + len(sentences)
    if data.heldout_files:
        heldout_share = _num_bytes(find_sources(data.heldout_files)) / max(sample_bytes * scale, 1)
    else:
        heldout_share = min(data.heldout, data.max_heldout / max(len(sentences) * scale, 1))
    positions = int(sample_positions * scale)
    size = TextSize(positions, int(positions * heldout_share), _estimate_vocab_size(data, sentences, scale))
    return _Text(len(sources), total_bytes, size)


def _num_bytes(sources: list[Source]) -> float:
    """The bytes of the text in files, of which some may be compressed."""
    return sum(source.size * (COMPRESSION_RATIO if source.path.endswith(COMPRESSED) else 1) for source in sources)


def _estimate_vocab_size(data: PrepareConfig, sentences: list[list[str]], scale: float) -> int:
    """The size of the vocabulary file, or an extrapolation by Heaps' law from the word types (distinct words)."""
    if data.vocab_path:
        return len(read_vocabulary(data.vocab_path))
    counts = Counter(token for sentence in sentences for token in sentence)
    num_types = sum(count >= data.min_count for count in counts.values())
    return min(data.max_vocab or 1 << 30, int(num_types * scale**0.6) + 3)


def _format_bytes(number: float) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"
