"""A whole pretraining run: prepare the text, train, measure, and export a model people can load.

run/
  data/        prepared text
  (see `loop`: config.toml, metrics.jsonl, checkpoints/, best/)
  model/       the finished model, for elmo.load
  published/   options.json + weights.hdf5, for old tools
  curve.svg    the course of the run
  report.json  what came out, with the definition of its numbers
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from elmo import run_folder
from elmo.devices import choose_device
from elmo.errors import ConfigError, DataError
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, HeadConfig, WordConfig, num_parameters
from elmo.pretrain.config import RunConfig
from elmo.pretrain.data.preflight import first_look
from elmo.pretrain.data.prepared import PreparedData, open_prepared
from elmo.pretrain.data.shards import prepare
from elmo.pretrain.data.vocabulary import require_sorted
from elmo.pretrain.train import distributed
from elmo.pretrain.train.export import export
from elmo.pretrain.train.feed import step_seed
from elmo.pretrain.train.loop import TrainResult, train
from elmo.pretrain.train.type_inputs import input_rows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobResult:
    """How the call ended, and where the model is (None: a signal came first, or another process writes it)."""

    train: TrainResult
    model: Path | None
    report: dict[str, Any] | None


def pretrain(
    config: RunConfig,
    out: Path,
    *,
    initial: BiLM | None = None,
    num_workers: int | None = None,
    strict_resume: bool = False,
    about: dict[str, Any] | None = None,
    say: Callable[[str], None] = log.info,
) -> JobResult:
    """Runs or continues a run in `out`. `initial` starts from another model's weights instead of random ones."""
    with distributed.joined(choose_device(config.train.device)) as device, lock_run_folder(out):
        if distributed.rank() != 0:
            say = _say_nothing
        _check_shares(config)
        data = _prepared(config, out, num_workers, say)
        model_config = model_for(config, data)
        config = settle(replace(config, model=replace(model_config, head=None)), data, device)
        model = _model(model_config, config, initial).to(device)
        rows = input_rows(data, model_config).to(device)
        say(_opening(config, model_config, data, device))
        result = train(
            model, rows, data, config, out, identity=identity(config, data), strict_resume=strict_resume, say=say
        )
        if result.reason == "signal" or distributed.rank() != 0:
            return JobResult(result, None, None)
        report = export(model, rows, data, config, out, result, about or {}, say)
        return JobResult(result, out / "model", report)


def settle(config: RunConfig, data: PreparedData, device: str) -> RunConfig:
    """The run with what depends on the text and the device filled in: how many steps, and in which precision."""
    train = config.train
    steps = train.max_steps or max(1, round(train.epochs * data.train.num_positions / (train.rows * train.steps)))
    precision = (
        ("bfloat16" if device.startswith("cuda") else "float32") if train.precision == "auto" else train.precision
    )
    return replace(config, train=replace(train, max_steps=steps, precision=precision))


def model_for(config: RunConfig, data: PreparedData) -> BiLMConfig:
    """The model to train on prepared text, having checked that the two fit."""
    if config.objective.softmax == "sampled":
        require_sorted(data.order_score, str(config.data.vocab_path or data.folder / "vocab.txt"))
    chars = config.model.chars
    if chars and chars.max_chars != data.max_chars:
        raise ConfigError(
            f"The text was prepared for {data.max_chars} characters a word, the model takes {chars.max_chars}."
        )
    return model_for_size(config, data.vocab_size)


def model_for_size(config: RunConfig, vocab_size: int) -> BiLMConfig:
    """The configured shape with a softmax (and a word table) of a vocabulary's size."""
    objective, model = config.objective, config.model
    if objective.softmax == "adaptive":
        cutoffs = objective.cutoffs or (max(1, vocab_size // 10), max(2, vocab_size // 2))
        head = HeadConfig(vocab_size=vocab_size, kind="adaptive", cutoffs=cutoffs)
    else:
        head = HeadConfig(vocab_size=vocab_size, tied=objective.tied)
    words = model.words and WordConfig(num_words=vocab_size, word_dim=model.words.word_dim)
    return replace(model, words=words, head=head)


def identity(config: RunConfig, data: PreparedData) -> dict[str, Any]:
    """What a checkpoint must share with the call that continues it; limits, rates and devices may change."""
    train = config.train
    return {
        "text": data.fingerprint,
        "model": json.loads(json.dumps(config.model.to_dict())),
        "objective": json.loads(json.dumps(vars(config.objective))),
        "optimizer": config.optim.name,
        "seed": train.seed,
        "rows": train.rows,
        "steps": train.steps,
        "reset": train.reset,
        "shuffle": train.shuffle,
    }


@contextmanager
def lock_run_folder(folder: Path) -> Iterator[None]:
    """Makes the run folder and locks it, so that one training at a time writes there."""
    if distributed.rank() != 0:  # the first process holds the lock for all
        yield
        return
    with run_folder.lock_run_folder(folder):
        yield


def _check_shares(config: RunConfig) -> None:
    parts = distributed.world_size() * config.train.accumulate
    if config.train.rows % parts:
        raise ConfigError(
            f"{config.train.rows} rows cannot be shared by {distributed.world_size()} processes x "
            f"{config.train.accumulate} parts.",
            f"Choose --rows that {parts} divides.",
        )


def _say_nothing(line: str) -> None:
    """For all processes but the first."""


def _prepared(config: RunConfig, out: Path, num_workers: int | None, say: Callable[[str], None]) -> PreparedData:
    """The prepared text in the run folder; one process makes it, the others open it afterwards."""
    max_chars = config.model.chars.max_chars if config.model.chars else config.data.max_chars
    wanted = replace(config.data, max_chars=max_chars)
    gone = "-" in wanted.files and (out / "data").exists()  # standard input was read: continue with what it gave
    if distributed.rank() == 0 and not gone:
        if not (out / "data").exists():
            for warning in first_look(wanted, num_workers):
                say(f"warning: {warning}")
        prepare(wanted, out / "data", num_workers=num_workers)
    distributed.wait_for_all()
    data = open_prepared(out / "data")
    if data.train.num_positions < config.train.rows:
        raise DataError(
            f"The text has {data.train.num_positions:,} positions for {config.train.rows} rows.",
            "Give more text or lower --rows.",
        )
    return data


def _model(model_config: BiLMConfig, config: RunConfig, initial: BiLM | None) -> BiLM:
    if initial is not None:
        if initial.config != model_config:
            raise ConfigError("The model to start from has another shape than the run.", "Use `elmo finetune`.")
        return initial
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(step_seed(config.train.seed, 0, "weights"))
        return BiLM(model_config)


def _opening(config: RunConfig, model: BiLMConfig, data: PreparedData, device: str) -> str:
    train = config.train
    return (
        f"{num_parameters(model):,} parameters + {num_parameters(model, head=True) - num_parameters(model):,} softmax; "
        f"{data.vocab_size:,} words, {data.train.num_tokens:,} tokens in {data.train.num_sentences:,} sentences, "
        f"{data.heldout.num_tokens:,} held out; {train.max_steps:,} steps of {train.rows} x {train.steps} tokens "
        f"on {device}, {train.precision}; recipe {config.recipe}"
    )
