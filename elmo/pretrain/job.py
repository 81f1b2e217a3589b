"""Runs a whole pretraining run: prepares the text, trains, evaluates, and exports a model that `elmo.load` reads.

run/
  data/        prepared text
  (see `loop`: config.toml, metrics.jsonl, checkpoints/, best/)
  model/       the finished model, for elmo.load
  published/   options.json + weights.hdf5, for older tools
  curve.svg    training and held-out curves; languages.svg: those of each language, if there are several
  report.json  held-out perplexity of the finished model and its definition
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo import run_folder
from elmo.devices import choose_device
from elmo.errors import ConfigError, DataError
from elmo.files import read_json
from elmo.model.bilm import BiLM
from elmo.model.config import BiLMConfig, num_parameters
from elmo.pretrain.config import (
    RunConfig,
    TrainConfig,
    head_only_steps,
    model_config_for_vocab,
    num_steps,
    resolve_precision,
    write_config,
)
from elmo.pretrain.data.preflight import preflight_warnings
from elmo.pretrain.data.prepare import prepare
from elmo.pretrain.data.prepared import PreparedData, open_prepared
from elmo.pretrain.data.sources import describe_folders
from elmo.pretrain.data.stream import sampling_identity, shuffle_identity
from elmo.pretrain.data.text_files import find_text
from elmo.pretrain.data.vocabulary import require_sorted
from elmo.pretrain.duration import last_step, prepared_size, say_duration
from elmo.pretrain.train import distributed
from elmo.pretrain.train.export import export, load_best_weights
from elmo.pretrain.train.heap_memory import freed_memory_kept
from elmo.pretrain.train.loop import TrainResult, train
from elmo.pretrain.train.step_inputs import step_seed
from elmo.pretrain.train.type_inputs import input_rows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobResult:
    """How the run ended. `model` and `report` are None after a signal, and in all processes except the first."""

    train: TrainResult
    model: Path | None  # folder of the exported model
    report: dict[str, Any] | None


def pretrain(
    config: RunConfig,
    out: Path,
    *,
    initial: BiLM | None = None,
    new_softmax: bool = False,
    continued: bool = False,
    num_workers: int | None = None,
    strict_resume: bool = False,
    about: dict[str, Any] | None = None,
    earlier_counts: Mapping[str, int] | None = None,
    say: Callable[[str], None] = log.info,
    show_progress: bool | None = None,
    device: str | None = None,
) -> JobResult:
    """Starts or continues the run in the folder `out`.

    `initial`: a model whose weights the run starts from, instead of random weights; with `new_softmax` those of its
    softmax are random. `about` is added to the metadata of the exported model, and `earlier_counts`, word counts of the
    text that `initial` was trained on, to its word counts. `continued`: the run goes on with the text that its folder
    holds, and the text files are not looked at. `say` receives status lines. `show_progress`: see `Progress`. `device`:
    the one that `hold_folder` gave to a caller who holds the folder already.
    """
    if device is None and not continued and not (out / "data").exists():
        check_text(config)
    with hold_folder(config, out) if device is None else nullcontext(device) as device:
        say, show_progress = distributed.first_process_only(say), show_progress if distributed.rank() == 0 else False
        _check_rows(config)
        data = _prepare_or_open(config, out, continued, num_workers, say, show_progress)
        model_config = model_config_for(config, data)
        config = replace(config, model=replace(model_config, head=None))
        config = resolve_settings(config, data, device, new_softmax=new_softmax)
        say(_describe_run(config, model_config, data, device))
        if line := _describe_head_only_steps(config.train):
            say(line)
        with freed_memory_kept(device):
            say_duration(config, prepared_size(data), device, out, say, is_finetuning=initial is not None)
            model = _initial_model(model_config, config, initial).to(device)
            rows = input_rows(data, model_config).to(device)
            result = train(
                model,
                rows,
                data,
                config,
                out,
                identity=identity(config, data),
                strict_resume=strict_resume,
                print_status=say,
            )
        if result.reason == "signal" or distributed.rank() != 0:
            return JobResult(result, None, None)
        load_best_weights(model, out, result)
        if not result.num_new_steps and (report := _finished_report(out, result, config)) is not None:
            say(
                f"{out} is finished ({result.reason}, step {result.step:,}) and was not changed. A larger --max-steps "
                "or --epochs continues it."
            )
            return JobResult(result, out / "model", report)
        counts = _add_counts(data, earlier_counts or {})
        report = export(model, rows, data, config, out, result, counts, about or {}, say, show_progress=show_progress)
        return JobResult(result, out / "model", report)


def _add_counts(data: PreparedData, earlier: Mapping[str, int]) -> np.ndarray:
    """The word counts of the text and those of an earlier text together, (V,) int64."""
    return data.word_counts() + np.array([earlier.get(word, 0) for word in data.vocab.words], dtype=np.int64)


def resolve_settings(config: RunConfig, data: PreparedData, device: str, *, new_softmax: bool = False) -> RunConfig:
    """The config with the settings that depend on text, device and softmax filled in."""
    train = config.train
    train = replace(
        train,
        max_steps=num_steps(train, data.train.num_positions),
        precision=resolve_precision(train, device),
        head_only_steps=head_only_steps(train, last_step(config, prepared_size(data)), new_softmax=new_softmax),
    )
    return replace(config, train=train)


def model_config_for(config: RunConfig, data: PreparedData) -> BiLMConfig:
    """The shape of the model for prepared text; a ConfigError if model and text do not fit together."""
    if config.objective.softmax == "sampled":
        require_sorted(data.order_score, str(config.data.vocab_path or data.folder / "vocab.txt"))
    chars = config.model.chars
    if chars and chars.max_chars != data.max_chars:
        raise ConfigError(
            f"The text was prepared with {data.max_chars} characters per word; the model expects {chars.max_chars}.",
            "Prepare the text again with the model's max_chars.",
        )
    return model_config_for_vocab(config, data.vocab_size)


def identity(config: RunConfig, data: PreparedData) -> dict[str, Any]:
    """The settings that must be the same when a checkpoint is continued; limits, rates and devices may change."""
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
        **shuffle_identity(data.train, train.shuffle, train.shuffle_window),
        **sampling_identity(data.train),
    }


@contextmanager
def hold_folder(config: RunConfig, out: Path) -> Iterator[str]:
    """Joins the processes of torchrun, then makes and locks the run folder; yields the device of this process."""
    with distributed.join_processes(choose_device(config.train.device)) as device, lock_run_folder(out):
        yield device


@contextmanager
def lock_run_folder(folder: Path) -> Iterator[None]:
    """Makes the run folder and locks it, so that one training at a time writes there."""
    if distributed.rank() != 0:  # the first process holds the lock for all
        yield
        return
    with run_folder.lock_run_folder(folder):
        yield


def check_text(config: RunConfig) -> None:
    """Raises an error for text files that are missing or do not fit together, before the run folder is made.

    Under torchrun, the first process alone reads the text files.
    """
    if os.environ.get("RANK", "0") == "0":
        find_text(config.data)


def _check_rows(config: RunConfig) -> None:
    """The rows of a batch must divide evenly among processes and accumulated micro-batches."""
    divisor = distributed.world_size() * config.train.accumulate
    if config.train.rows % divisor:
        raise ConfigError(
            f"{config.train.rows} rows cannot be shared by {distributed.world_size()} processes x "
            f"{config.train.accumulate} micro-batches.",
            f"Choose --rows divisible by {divisor}.",
        )


def _finished_report(out: Path, result: TrainResult, config: RunConfig) -> dict[str, Any] | None:
    """The report of a run that had been finished and measured before at this step; None otherwise."""
    if result.reason == "time is up" or not (out / "model").is_dir() or not (out / "report.json").is_file():
        return None
    report = read_json(out / "report.json")
    # an earlier version measured all words and did not record this
    if "perplexity" in report and report.get("report_words") not in (None, config.train.report_words):
        return None
    return report if (report.get("step"), report.get("stopped")) == (result.step, result.reason) else None


def _prepare_or_open(
    config: RunConfig,
    out: Path,
    continued: bool,
    num_workers: int | None,
    say: Callable[[str], None],
    show_progress: bool | None,
) -> PreparedData:
    """The prepared text in the run's folder; the first process prepares it, the others open it afterwards."""
    max_chars = config.model.chars.max_chars if config.model.chars else config.data.max_chars
    data_config = replace(config.data, max_chars=max_chars)
    from_stdin, is_prepared = "-" in data_config.training_files, (out / "data").exists()
    if continued and from_stdin and not is_prepared:
        raise DataError(
            f"The text of the run in {out} came from standard input and was not prepared completely.",
            "Start the run again with the text.",
        )
    # Standard input can be read only once: a continued run uses the text that was prepared from it.
    uses_prepared = is_prepared and (continued or from_stdin)
    if continued and is_prepared:
        say(f"text: {out / 'data'}, as prepared before; the text files are not read again")
    if distributed.rank() == 0 and not uses_prepared:
        if not is_prepared:
            write_config(config, out)  # so that a run that is interrupted here can be continued
            for line in describe_folders((*data_config.training_files, *data_config.all_heldout_files)):
                say(line)
            needs_order = config.objective.softmax == "sampled"
            for warning in preflight_warnings(data_config, num_workers, needs_order=needs_order):
                say(f"warning: {warning}")
        prepare(data_config, out / "data", num_workers=num_workers, progress=show_progress)
    distributed.barrier()
    data = open_prepared(out / "data", verify=uses_prepared and distributed.rank() == 0)
    if data.train.num_positions < config.train.rows:
        raise DataError(
            f"The text has {data.train.num_positions:,} positions for {config.train.rows} rows.",
            "Use more text or fewer --rows.",
        )
    return data


def _initial_model(model_config: BiLMConfig, config: RunConfig, initial: BiLM | None) -> BiLM:
    if initial is not None:
        if initial.config != model_config:
            raise ConfigError("The initial model has another shape than the run.", "Use `elmo finetune`.")
        return initial
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(step_seed(config.train.seed, 0, "weights"))
        return BiLM(model_config)


def _describe_run(config: RunConfig, model: BiLMConfig, data: PreparedData, device: str) -> str:
    train = config.train
    return (
        f"{num_parameters(model):,} parameters + {num_parameters(model, head=True) - num_parameters(model):,} softmax; "
        f"{data.vocab_size:,} words, {data.train.num_tokens:,} tokens in {data.train.num_sentences:,} sentences, "
        f"{data.heldout.num_tokens:,} held out; {train.max_steps:,} steps of {train.rows} x {train.steps} tokens "
        f"on {device}, {train.precision}; recipe {config.recipe}"
    )


def _describe_head_only_steps(train: TrainConfig) -> str:
    """How many steps train the softmax alone; empty if none does."""
    alone, hint = train.head_only_steps, "(train.head_only_steps)"
    if alone >= train.max_steps:
        return f"warning: all {train.max_steps:,} steps train the softmax alone {hint}; the vectors will not change"
    return f"the first {alone:,} of {train.max_steps:,} steps train the softmax alone {hint}" if alone else ""
