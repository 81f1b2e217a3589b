"""Estimates parameters, tokens per epoch, memory and time of a run from a sample of its text (`--dry-run`)."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from elmo.devices import choose_device
from elmo.files import COMPRESSED
from elmo.model.config import num_parameters
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.corpus import read_sentences
from elmo.pretrain.data.languages import Language, sample_languages
from elmo.pretrain.data.prepare_config import PrepareConfig
from elmo.pretrain.data.prepared import open_prepared
from elmo.pretrain.data.sources import find_language_sources, find_sources
from elmo.pretrain.data.vocabulary import read_vocabulary
from elmo.pretrain.job import model_config_for_vocab
from elmo.pretrain.train.throughput import flops_per_token
from elmo.progress import format_duration

SAMPLE_SENTENCES = 20_000
COMPRESSION_RATIO = 3.5  # bytes of text per byte of a compressed file
MATMUL_UTILIZATION = 0.35  # assumed share of the speed of a large matrix product that training reaches
# Seconds per time step of one layer besides its matrix products, forward and backward.
CPU_STEP_OVERHEAD, CUDA_STEP_OVERHEAD = 5e-4, 5e-5


@dataclass(frozen=True)
class _Text:
    """The size of the training text: exact for prepared text, otherwise estimated."""

    num_files: int
    num_bytes: float
    epoch_tokens: int
    vocab_size: int
    languages: tuple[Language, ...] = ()


def estimate(config: RunConfig, out: Path, *, continued: bool = False) -> str:
    """The plan of a run as text.

    Token counts are extrapolated by bytes from the first sentences, or those of the prepared text of a run that is
    `continued`; times from the measured speed of a matrix product.
    """
    text = _prepared_text(out / "data") if continued and (out / "data").exists() else _sampled_text(config.data)
    epoch_tokens, vocab_size = text.epoch_tokens, text.vocab_size
    model = model_config_for_vocab(config, vocab_size)
    train, device = config.train, choose_device(config.train.device)
    steps = train.max_steps or max(1, round(train.epochs * epoch_tokens / (train.rows * train.steps)))
    samples = min(config.objective.num_samples, vocab_size) if config.objective.softmax == "sampled" else vocab_size
    positions = train.rows * train.steps
    time_steps = train.steps * model.lstm.num_layers * model.num_directions * train.accumulate
    step_seconds = positions * flops_per_token(model, samples) / (MATMUL_UTILIZATION * _matmul_flops(device))
    step_seconds += time_steps * (CUDA_STEP_OVERHEAD if device.startswith("cuda") else CPU_STEP_OVERHEAD)
    tokens_per_second = positions / step_seconds
    parameters, softmax = num_parameters(model), num_parameters(model, head=True) - num_parameters(model)
    copies = 3 if config.optim.name == "adagrad" else 4  # weights, gradients, one or two optimizer states
    activations = model.lstm.num_layers * (14 * model.lstm.cell_dim + 6 * model.lstm.proj_dim) + 3 * samples
    activations *= model.num_directions * positions // train.accumulate
    memory = 4 * (copies * (parameters + softmax) + activations)
    run_tokens, duration = steps * positions, format_duration(steps * step_seconds)
    free = shutil.disk_usage(out.parent if out.parent.exists() else Path(".")).free
    disk = (train.keep + 1) * copies * 4 * (parameters + softmax)
    return "\n".join(
        [
            *_describe_languages(text.languages, config.data.temperature),
            f"text        {text.num_files} files, {text.num_bytes / 1e6:,.1f} MB, about {epoch_tokens:,} tokens per "
            "epoch",
            f"vocabulary  about {vocab_size:,} words (at most {config.data.max_vocab or 'all'})",
            f"model       {parameters:,} parameters + {softmax:,} softmax; vectors of {model.dim}",
            f"run         {steps:,} steps of {train.rows} x {train.steps} tokens = "
            f"{run_tokens / max(epoch_tokens, 1):.1f} epochs; recipe {config.recipe}, seed {train.seed}",
            f"device      {device}, about {tokens_per_second:,.0f} tokens/s, {duration} for the run",
            f"memory      about {_format_bytes(memory)} (--set train.accumulate=2 reduces the memory of activations)",
            f"disk        about {_format_bytes(disk)} of checkpoints in {out}, {_format_bytes(free)} free",
            "Nothing was written. The same command without --dry-run starts or continues the run.",
        ]
    )


def _prepared_text(folder: Path) -> _Text:
    data = open_prepared(folder)
    sources = [source for source in data.manifest["sources"] if source["split"] == "train"]
    num_bytes = sum(source["size"] for source in sources)
    return _Text(len(sources), num_bytes, data.train.num_positions, data.vocab_size, data.languages)


def _describe_languages(languages: Sequence[Language], temperature: float) -> list[str]:
    if not languages:
        return []
    shares = ", ".join(f"{one.name} {one.share:.1%} (x {one.repetitions:.2f})" for one in languages)
    return [f"languages   {len(languages)}, temperature {temperature:g}; share of an epoch (repetitions): {shares}"]


def _sampled_text(data: PrepareConfig) -> _Text:
    if not data.languages:
        return _sampled_files(data, data.files, SAMPLE_SENTENCES)
    find_language_sources(data.languages)  # a file of two languages is an error now
    num_sentences = max(1, SAMPLE_SENTENCES // len(data.languages))
    texts = {name: _sampled_files(data, files, num_sentences) for name, files in data.languages.items()}
    sizes = {name: text.epoch_tokens for name, text in texts.items()}
    return _Text(
        sum(text.num_files for text in texts.values()),
        sum(text.num_bytes for text in texts.values()),
        sum(sizes.values()),
        min(data.max_vocab or 1 << 30, sum(text.vocab_size for text in texts.values())),
        sample_languages(sizes, data.temperature),
    )


def _sampled_files(data: PrepareConfig, files: Sequence[str], max_sentences: int) -> _Text:
    sources = find_sources(files)
    sentences = list(islice(read_sentences(files, data.reading), max_sentences))
    sample_bytes = sum(len(token.encode()) + 1 for sentence in sentences for token in sentence)
    total_bytes = sum(
        source.size * (COMPRESSION_RATIO if source.path.endswith(COMPRESSED) else 1) for source in sources
    )
    is_sample = len(sentences) == max_sentences
    scale = max(1.0, total_bytes / max(sample_bytes, 1)) if is_sample else 1.0
    epoch_tokens = int((sum(map(len, sentences)) + len(sentences)) * scale)
    return _Text(len(sources), total_bytes, epoch_tokens, _estimate_vocab_size(data, sentences, scale))


def _estimate_vocab_size(data: PrepareConfig, sentences: list[list[str]], scale: float) -> int:
    """The size of the vocabulary file, or an extrapolation by Heaps' law from the word types (distinct words)."""
    if data.vocab_path:
        return len(read_vocabulary(data.vocab_path))
    counts = Counter(token for sentence in sentences for token in sentence)
    num_types = sum(count >= data.min_count for count in counts.values())
    return min(data.max_vocab or 1 << 30, int(num_types * scale**0.6) + 3)


def _matmul_flops(device: str) -> float:
    """FLOP/s of a large matrix product, measured for about 0.2 seconds."""
    size = 4096 if device.startswith("cuda") else 768
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    float((matrix @ matrix)[0, 0])
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 0.2:
        float((matrix @ matrix)[0, 0])
        count += 1
    return count * 2 * size**3 / (time.perf_counter() - start)


def _format_bytes(number: float) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"
