"""What a run would do and take, before it does: parameters, tokens an epoch, memory, time, from a look at the text."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import torch

from elmo.devices import choose_device
from elmo.files import COMPRESSED
from elmo.model.config import num_parameters
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.corpus import find_sources, read_sentences
from elmo.pretrain.data.shards import PrepareConfig
from elmo.pretrain.data.vocabulary import read_vocabulary
from elmo.pretrain.job import model_for_size
from elmo.pretrain.train.throughput import clock, flops_per_token

SAMPLE = 20_000  # sentences looked at
PACKED = 3.5  # bytes of text in a byte of a compressed file
CPU_CELL, CUDA_CELL = 5e-4, 5e-5  # seconds that a layer's step takes beside its products, forward and backward


def estimate(config: RunConfig, out: Path) -> str:
    """The plan in words. Token counts are extrapolated from the first sentences by bytes; times by a short product."""
    sources = find_sources(config.data.files)
    sentences = list(islice(read_sentences(config.data.files, config.data.reading), SAMPLE))
    sample_bytes = sum(len(token.encode()) + 1 for sentence in sentences for token in sentence)
    total_bytes = sum(source.size * (PACKED if source.path.endswith(COMPRESSED) else 1) for source in sources)
    tokens = sum(map(len, sentences))
    growth = max(1.0, total_bytes / max(sample_bytes, 1)) if len(sentences) == SAMPLE else 1.0
    epoch_tokens = int((tokens + len(sentences)) * growth)
    vocab_size = _vocab_size(config.data, sentences, growth)
    model = model_for_size(config, vocab_size)
    train, device = config.train, choose_device(config.train.device)
    steps = train.max_steps or max(1, round(train.epochs * epoch_tokens / (train.rows * train.steps)))
    samples = min(config.objective.num_samples, vocab_size) if config.objective.softmax == "sampled" else vocab_size
    positions = train.rows * train.steps
    cells = train.steps * model.lstm.num_layers * model.num_directions * train.accumulate
    step_seconds = positions * flops_per_token(model, samples) / (0.35 * _products_per_second(device))
    step_seconds += cells * (CUDA_CELL if device.startswith("cuda") else CPU_CELL)
    speed = positions / step_seconds
    parameters, softmax = num_parameters(model), num_parameters(model, head=True) - num_parameters(model)
    copies = 3 if config.optim.name == "adagrad" else 4  # weights, gradients, one or two sums
    kept = model.lstm.num_layers * (14 * model.lstm.cell_dim + 6 * model.lstm.proj_dim) + 3 * samples
    kept *= model.num_directions * positions // train.accumulate
    memory = 4 * (copies * (parameters + softmax) + kept)
    run_tokens = steps * positions
    free = shutil.disk_usage(out.parent if out.parent.exists() else Path(".")).free
    disk = (train.keep + 1) * copies * 4 * (parameters + softmax)
    return "\n".join(
        [
            f"text        {len(sources)} files, {total_bytes / 1e6:,.1f} MB, about {epoch_tokens:,} tokens an epoch",
            f"vocabulary  about {vocab_size:,} words (at most {config.data.max_vocab or 'all'})",
            f"model       {parameters:,} parameters + {softmax:,} softmax; vectors of {model.dim}",
            f"run         {steps:,} steps of {train.rows} x {train.steps} tokens = "
            f"{run_tokens / max(epoch_tokens, 1):.1f} epochs; recipe {config.recipe}, seed {train.seed}",
            f"device      {device}, about {speed:,.0f} tokens/s, {clock(steps * step_seconds)} for the run",
            f"memory      about {_bytes(memory)} (--set train.accumulate=2 saves activations)",
            f"disk        about {_bytes(disk)} of checkpoints in {out}, {_bytes(free)} free",
            "nothing was written; the same command without --dry-run starts (or continues) the run",
        ]
    )


def _vocab_size(data: PrepareConfig, sentences: list[list[str]], growth: float) -> int:
    """Of the file, or by Heaps' law from the sample."""
    if data.vocab_path:
        return len(read_vocabulary(data.vocab_path))
    counts = Counter(token for sentence in sentences for token in sentence)
    types = sum(count >= data.min_count for count in counts.values())
    return min(data.max_vocab or 1 << 30, int(types * growth**0.6) + 3)


def _products_per_second(device: str) -> float:
    """FLOP/s of a plain matrix product, timed for a moment."""
    size = 4096 if device.startswith("cuda") else 768
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    a = torch.randn(size, size, device=device, dtype=dtype)
    float((a @ a)[0, 0])
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 0.2:
        float((a @ a)[0, 0])
        count += 1
    return count * 2 * size**3 / (time.perf_counter() - start)


def _bytes(number: float) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"
