"""A run put together: from settings to data, words, model and batches, or from a finished run's folder back to them.

RUN/
  config.json         effective settings
  words.json          known words, label sets, width of the word vectors
  checkpoint/         while training: what is needed to go on
  model.safetensors   the weights that were best on dev (a frozen biLM's are not among them)
  record.json         settings, data, scores, mix weights, curve; written last
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from elmo.embed.embedder import Embedder
from elmo.embed.load import choose_device, load
from elmo.errors import ConfigError, DataError
from elmo.files import atomic_file, sha256_file
from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.elmo_input import make_inputs
from elmo.tasks.layer_cache import LayerSource, model_sha256
from elmo.tasks.task import Labels, Task, load_task
from elmo.tasks.token_batch import BatchMaker
from elmo.tasks.word_vectors import read_vectors
from elmo.tasks.word_vocabulary import Symbols, make_symbols, start_vectors

CONFIG, WORDS, WEIGHTS, RECORD = "config.json", "words.json", "model.safetensors", "record.json"


@dataclass(frozen=True)
class Splits:
    """A task's examples; `train` is what is trained on (a share, phrases), `test` None where there is none."""

    train: list[Any]
    dev: list[Any]
    test: list[Any] | None
    about: dict[str, Any]  # of each file: its name, sha256, how many examples


@dataclass(frozen=True)
class Run:
    """All that training, evaluation and prediction share."""

    task: Task
    config: RunConfig
    symbols: Symbols
    labels: Labels
    word_dim: int
    model: nn.Module  # a TaskModel
    maker: BatchMaker
    embedder: Embedder | None
    elmo_sha256: str | None  # of the biLM as it was loaded; None: no ELMo
    device: torch.device

    @property
    def autocast(self) -> torch.autocast:
        """The precision of products: bfloat16 where asked for, by default on CUDA."""
        precision = self.config.train.precision
        is_on = precision == "bfloat16" or (precision == "auto" and self.device.type == "cuda")
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_on)


def read_splits(task: Task, config: RunConfig) -> tuple[Splits, list[Any]]:
    """The examples, and the whole of the training file, for labels and words do not depend on the share."""
    data = config.data
    if not data.train or not data.dev:
        raise ConfigError("Training needs a train and a dev file.", "Give --train FILE --dev FILE.")
    whole = task.read(Path(data.train))
    some = whole
    if data.fraction < 1:
        count = max(1, round(data.fraction * len(whole)))
        chosen = np.random.default_rng((config.train.seed, len(whole))).permutation(len(whole))[:count]
        some = [whole[i] for i in sorted(chosen)]
    dev = task.read(Path(data.dev))
    test = task.read(Path(data.test)) if data.test else None
    train = task.training_examples(some, config.model)
    if not train:
        raise DataError(f"{data.train}: no example is left to train on.", "The [model] settings leave all out.")
    about = {
        split: {"path": path, "sha256": sha256_file(path), "examples": len(examples)}
        for split, path, examples in (("train", data.train, some), ("dev", data.dev, dev), ("test", data.test, test))
        if path and examples is not None
    }
    return Splits(train=train, dev=dev, test=test, about=about), whole


def new_run(config: RunConfig, *, show: bool | None = None) -> tuple[Run, Splits]:
    """Reads the data, numbers words and labels, embeds what a frozen biLM can embed beforehand, makes a fresh model."""
    task = load_task(config.task)
    splits, whole = read_splits(task, config)
    labels = task.labels(whole)
    training = sentences_of(whole)
    other = sentences_of([*splits.dev, *(splits.test or ())])
    table = None
    if config.words.vectors:
        wanted = {token for sentence in (*training, *other) for token in sentence}
        table = read_vectors(config.words.vectors, wanted, config.words.extra)
    word_dim = table.dim if table is not None else config.words.dim
    symbols = make_symbols(training, other, table, min_count=config.words.min_count) if word_dim else Symbols(())
    start = start_vectors(symbols, table, word_dim, config.train.seed) if word_dim else None
    run = _assemble(task, config, symbols, labels, word_dim, start)
    source = run.maker.source
    if source is not None:
        # on disk the whole file's layers serve every share of it
        train = task.training_examples(whole, config.model) if config.elmo.cache == "disk" else splits.train
        for part in (train, splits.dev, splits.test or []):
            source.prepare(sentences_of(part), show=show)
        if run.device.type == "cuda":
            source.lay_out(run.device)
    return run, splits


def save_words(folder: Path, run: Run) -> None:
    """Settings and symbols, so that a finished run can be opened without its data."""
    values = {"words": run.symbols.words, "labels": dict(run.labels), "word_dim": run.word_dim}
    for name, content in ((CONFIG, run.config.to_dict()), (WORDS, values)):
        with atomic_file(folder / name) as partial:
            partial.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def open_run(folder: str | Path, *, device: str | None = None, elmo_model: str | None = None) -> Run:
    """A finished run with its best weights. `elmo_model`: where the biLM lies now, if not where it lay."""
    folder = Path(folder)
    settings, known = read_json(folder / CONFIG), read_json(folder / WORDS)
    task = load_task(str(settings.get("task")))
    over: dict[str, Any] = {"train": {"device": device}} if device else {}
    over |= {"elmo": {"model": elmo_model}} if elmo_model else {}
    config = make_config(task, settings, over)
    symbols = Symbols(known["words"])
    labels = {kind: tuple(names) for kind, names in known["labels"].items()}
    start = np.zeros((len(symbols), known["word_dim"]), dtype=np.float32) if known["word_dim"] else None
    run = _assemble(task, config, symbols, labels, known["word_dim"], start)
    record = read_json(folder / RECORD)
    expected = (record.get("elmo") or {}).get("sha256")
    if config.elmo.mode == "frozen" and run.elmo_sha256 != expected:
        raise ConfigError(
            f"{config.elmo.model} is not the biLM that {folder} was trained with.", "Name the right one: --elmo MODEL."
        )
    try:
        weights = load_file(folder / WEIGHTS)
        run.model.load_state_dict(weights)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise DataError(f"{folder / WEIGHTS}: not this run's weights ({str(error)[:200]}).") from error
    run.model.to(run.device).eval()
    return run


def sentences_of(examples: Sequence[Any]) -> list[Sequence[str]]:
    return [sentence for example in examples for sentence in example.sentences]


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "A finished run has config.json, words.json, model.safetensors and record.json."
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).", hint) from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}).") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: expected a JSON object.")
    return values


def _assemble(
    task: Task, config: RunConfig, symbols: Symbols, labels: Labels, word_dim: int, start: np.ndarray | None
) -> Run:
    device = torch.device(choose_device(config.train.device))
    embedder = load(config.elmo.model, device=str(device)) if config.elmo.used else None
    sha256 = model_sha256(embedder) if embedder is not None else None
    frozen = embedder is not None and config.elmo.mode == "frozen"
    source = None
    if embedder is not None and sha256 is not None and frozen:
        source = LayerSource(embedder, sha256, cache=config.elmo.cache, cache_dir=config.elmo.cache_dir)
    torch.manual_seed(config.train.seed)
    model = task.build(config.model, labels, make_inputs(config, start, embedder)).to(device)
    maker = BatchMaker(
        symbols,
        labels,
        max_chars=config.chars.max_chars if config.chars.num_filters else 0,
        source=source,
        indexer=embedder.indexer if embedder is not None and not frozen else None,
    )
    return Run(task, config, symbols, labels, word_dim, model, maker, embedder, sha256, device)
