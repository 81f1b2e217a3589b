"""Creates a run (data, vocabulary, model, batches) from its settings, and opens a finished run from its folder.

RUN/
  config.json         effective settings
  words.json          vocabulary, label sets, dimension of the word vectors
  checkpoint/         the state that is needed to resume, and to continue a finished run for more epochs
  model.safetensors   the weights with the best dev score (without the weights of a frozen biLM)
  bilm/               the biLM, if it was fine-tuned on the text of the task in this folder (`finetune`)
  record.json         settings, data, scores, mix weights, curve; written last
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from elmo.devices import choose_device
from elmo.embed.embedder import Embedder
from elmo.embed.load import load
from elmo.embed.model_checksum import vectors_checksum
from elmo.errors import ConfigError, DataError
from elmo.files import read_json, sha256_file
from elmo.records import write_json
from elmo.schema import Keys, List, Maybe, Number, check_shape
from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.elmo_input import make_inputs
from elmo.tasks.layer_cache import LayerSource
from elmo.tasks.task import Labels, Task, load_task, read_labelled_file
from elmo.tasks.token_batch import BatchMaker
from elmo.tasks.word_vectors import read_vectors
from elmo.tasks.word_vocabulary import WordVocabulary, build_vocabulary, initial_vectors
from elmo.text.tokenizer_function import choose_tokenizer

CONFIG, WORDS, WEIGHTS, RECORD, BILM = "config.json", "words.json", "model.safetensors", "record.json", "bilm"
_WORDS_SHAPE = {
    "words": List(str),
    "labels": Keys(".*", List(str)),
    "word_dim": Number(low=0, high=10_000, whole=True),
}
_MAX_BYTES = 1 << 30  # of a JSON file of a run; the vocabulary is the largest
_TRAIN_AGAIN = "The file was changed or damaged; train the model again in another folder."


@dataclass(frozen=True)
class Splits:
    """The examples of a run; `train` may be a share of the file, or phrases; `test` is None without a test file."""

    train: list[Any]
    dev: list[Any]
    test: list[Any] | None
    about: dict[str, Any]  # by split: path, sha256 and number of examples


@dataclass(frozen=True)
class Run:
    """What training, evaluation and prediction share."""

    task: Task
    config: RunConfig
    vocabulary: WordVocabulary
    labels: Labels
    word_dim: int
    model: nn.Module  # a TaskModel
    maker: BatchMaker
    embedder: Embedder | None
    elmo_sha256: str | None  # of the biLM as loaded; None without ELMo
    device: torch.device

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer of raw text: that of the task's files if they may have raw text, else the biLM's."""
        of_model = self.embedder.tokenizer_name if self.embedder and not self.task.reads_raw_text else None
        return self.config.data.tokenizer or of_model or "default"

    @property
    def autocast(self) -> torch.autocast:
        """The precision of matrix products: bfloat16 if the settings choose it, by default on CUDA."""
        precision = self.config.train.precision
        is_enabled = precision == "bfloat16" or (precision == "auto" and self.device.type == "cuda")
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_enabled)


def read_splits(task: Task, config: RunConfig) -> tuple[Splits, list[Any]]:
    """The examples of the run, and all examples of the training file.

    Labels and vocabulary come from all of them, so that they do not depend on the share.
    """
    data = config.data
    if not data.train or not data.dev:
        raise ConfigError("Training needs a train and a dev file.", "Give --train FILE --dev FILE.")
    all_train = read_labelled_file(task, data.train, data.tokenizer)
    selected = all_train
    if data.fraction < 1:
        count = max(1, round(data.fraction * len(all_train)))
        indices = np.random.default_rng((config.train.seed, len(all_train))).permutation(len(all_train))[:count]
        selected = [all_train[i] for i in sorted(indices)]
    dev = read_labelled_file(task, data.dev, data.tokenizer)
    test = read_labelled_file(task, data.test, data.tokenizer) if data.test else None
    train = task.training_examples(selected, config.model)
    if not train:
        raise DataError(f"{data.train}: there is no example to train on.", "The [model] settings exclude all examples.")
    files = (("train", data.train, selected), ("dev", data.dev, dev), ("test", data.test, test))
    about = {
        split: {"path": path, "sha256": sha256_file(path), "examples": len(examples)}
        for split, path, examples in files
        if path and examples is not None
    }
    return Splits(train=train, dev=dev, test=test, about=about), all_train


def new_run(config: RunConfig, *, show: bool | None = None) -> tuple[Run, Splits]:
    """Reads the data, builds vocabulary and labels, creates a model, and computes the layers of a frozen biLM."""
    task = load_task(config.task)
    splits, all_train = read_splits(task, config)
    labels = task.labels(all_train)
    training = sentences_of(all_train)
    other = sentences_of([*splits.dev, *(splits.test or ())])
    vectors = None
    if config.words.vectors:
        data_words = {token for sentence in (*training, *other) for token in sentence}
        vectors = read_vectors(config.words.vectors, data_words, config.words.extra)
    word_dim = vectors.dim if vectors is not None else config.words.dim
    vocabulary, initial = WordVocabulary(()), None
    if word_dim:
        vocabulary = build_vocabulary(training, other, vectors, min_count=config.words.min_count)
        initial = initial_vectors(vocabulary, vectors, word_dim, config.train.seed)
    run = _assemble(task, config, vocabulary, labels, word_dim, initial)
    if run.embedder is not None and task.reads_raw_text:
        choose_tokenizer(run.embedder.tokenizer_name, config.data.tokenizer or "default")  # warns of another one
    source = run.maker.source
    if source is not None:
        # a disk cache of the whole file can be used by runs on any share of it
        is_wider = config.elmo.cache == "disk" and config.data.fraction < 1
        train = task.training_examples(all_train, config.model) if is_wider else splits.train
        for examples in (train, splits.dev, splits.test or []):
            source.prepare(sentences_of(examples), show=show)
        if run.device.type == "cuda":
            source.copy_to_device(run.device)
    return run, splits


def save_vocabulary(folder: Path, run: Run) -> None:
    """Writes settings, vocabulary and labels, so that a finished run can be opened without its data."""
    values = {"words": run.vocabulary.words, "labels": dict(run.labels), "word_dim": run.word_dim}
    write_json(folder / CONFIG, run.config.to_dict())
    write_json(folder / WORDS, values)


def open_run(folder: str | Path, *, device: str | None = None, elmo_model: str | None = None) -> Run:
    """Opens a finished run with its best weights. `elmo_model` is the biLM's present location, if it was moved."""
    folder = Path(folder)
    settings, values = read_run_file(folder / CONFIG), read_run_file(folder / WORDS)
    check_shape(values, _WORDS_SHAPE, folder / WORDS, hint=_TRAIN_AGAIN)
    task = load_task(str(settings.get("task")))
    overrides: dict[str, Any] = {"train": {"device": device}} if device else {}
    overrides |= {"elmo": {"model": elmo_model}} if elmo_model else {}
    config = make_config(task, settings, overrides)
    if not elmo_model and (folder / BILM).is_dir() and not Path(config.elmo.model).exists():
        # the folder was moved together with the biLM that was fine-tuned in it; its checksum is compared below
        config = replace(config, elmo=replace(config.elmo, model=str(folder / BILM)))
    vocabulary = WordVocabulary(values["words"])
    labels = _LabelSets({name: tuple(label_set) for name, label_set in values["labels"].items()})
    labels.source = folder / WORDS
    word_dim = values["word_dim"]
    initial = np.zeros((len(vocabulary), word_dim), dtype=np.float32) if word_dim else None
    run = _assemble(task, config, vocabulary, labels, word_dim, initial)
    record = read_run_file(folder / RECORD)
    check_shape(record, {"elmo": Maybe({"sha256": str})}, folder / RECORD, hint=_TRAIN_AGAIN)
    expected = (record.get("elmo") or {}).get("sha256")
    if config.elmo.mode == "frozen" and run.elmo_sha256 != expected:
        raise ConfigError(
            f"{config.elmo.model} is not the biLM that {folder} was trained with.", "Give the right one: --elmo MODEL."
        )
    try:
        weights = load_file(folder / WEIGHTS)
        run.model.load_state_dict(weights)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise DataError(f"{folder / WEIGHTS}: not the weights of this run ({str(error)[:200]}).") from error
    run.model.to(run.device).eval()
    return run


def sentences_of(examples: Sequence[Any]) -> list[Sequence[str]]:
    """The sentences of all examples."""
    return [sentence for example in examples for sentence in example.sentences]


def read_run_file(path: Path) -> dict[str, Any]:
    """Reads a JSON object of a run; DataError if it cannot be read."""
    try:
        return read_json(path, max_bytes=_MAX_BYTES)
    except DataError as error:
        hint = "A finished run has config.json, words.json, model.safetensors and record.json."
        raise DataError(error.message, error.hint or hint) from error


class _LabelSets(dict[str, tuple[str, ...]]):
    """The label sets of a stored run; a set that the model needs and the file lacks is an error of the file."""

    source: Path

    def __missing__(self, name: str) -> tuple[str, ...]:
        raise DataError(f"{self.source}: labels.{name} is missing; expected a list.", _TRAIN_AGAIN)


def _assemble(
    task: Task,
    config: RunConfig,
    vocabulary: WordVocabulary,
    labels: Labels,
    word_dim: int,
    initial: np.ndarray | None,  # values of the word embedding
) -> Run:
    device = torch.device(choose_device(config.train.device))
    embedder = load(config.elmo.model, device=str(device)) if config.elmo.used else None
    sha256 = vectors_checksum(embedder) if embedder is not None else None
    is_frozen = embedder is not None and config.elmo.mode == "frozen"
    source = None
    if embedder is not None and sha256 is not None and is_frozen:
        source = LayerSource(embedder, sha256, cache=config.elmo.cache, cache_dir=config.elmo.cache_dir)
    torch.manual_seed(config.train.seed)
    model = task.build(config.model, labels, make_inputs(config, initial, embedder)).to(device)
    maker = BatchMaker(
        vocabulary,
        labels,
        max_chars=config.chars.max_chars if config.chars.num_filters else 0,
        source=source,
        indexer=embedder.indexer if embedder is not None and not is_frozen else None,
    )
    return Run(task, config, vocabulary, labels, word_dim, model, maker, embedder, sha256, device)
