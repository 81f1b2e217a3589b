"""record.json of a task run: its settings, data and results, from which all tables and charts are made.

format, version, kind, versions     the envelope of `elmo.records`; kind is "task"
command                             repeats the run, given a folder for --out
task, metric, seed, config          settings
data                                of train, dev, test: path, sha256, number of examples
elmo, vectors                       model or path, and sha256; null where there is none
elmo.finetuning                     if the biLM was fine-tuned on a task's text: from what, with which perplexities
dev, test                           scores in percent; test is null without a test file
mixes                               by place ("input", "output"): softmax weights of the layers, gamma
epochs, updates, best               length of the run; best: epoch, update and score of the stored weights
curve                               one entry per validation: epoch, update, loss, lr, dev, seconds
seconds, parameters, device
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from elmo.embed.load import model_parts
from elmo.errors import DataError
from elmo.files import sha256_file
from elmo.record_shapes import describe_problem, find_record_problem
from elmo.records import kind_of, make_record
from elmo.settings import changed_settings, format_assignment
from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.run import RECORD, Run, Splits, read_run_file
from elmo.tasks.task import Task


def run_record(run: Run, splits: Splits, **results: Any) -> dict[str, Any]:
    """The record of a finished run; `results` holds what the training loop measured."""
    config = run.config
    weights = [p for p in run.model.parameters() if p.requires_grad]
    values = {
        "task": run.task.name,
        "metric": run.task.metric,
        "seed": config.train.seed,
        "config": config.to_dict(),
        "data": splits.about,
        "elmo": _describe_elmo(run),
        "vectors": vectors_identity(config.words.vectors),
        **results,
        "mixes": run.model.inputs.mixes(),  # type: ignore[union-attr,operator]  # a TaskModel
        "parameters": sum(p.numel() for p in weights),
        "device": torch.cuda.get_device_name() if run.device.type == "cuda" else platform.machine(),
        **({"place": config.elmo.place} if config.elmo.used else {}),
    }
    return make_record("task", values, command=command_of(run.task, config))


def command_of(task: Task, config: RunConfig) -> str:
    """`elmo task train` with every setting that differs from the task's defaults."""
    words = ["elmo", "task", "train", task.name]
    for key, (_, value) in changed_settings(make_config(task).to_dict(), config.to_dict()).items():
        words += ["--set", format_assignment(key, value)]
    return shlex.join(words)


def elmo_identity(run: Run) -> dict[str, str] | None:
    """The biLM and the checksum of its weights before the task; None without ELMo."""
    return None if run.elmo_sha256 is None else {"model": run.config.elmo.model, "sha256": run.elmo_sha256}


def finetuning_of(model: str | Path) -> dict[str, Any] | None:
    """The summary of its fine-tuning in a model; None for a model that was not fine-tuned on a task's text."""
    summary = model_parts(model, lazy_head=True).about.get("finetuning")
    return summary if isinstance(summary, dict) else None


def _describe_elmo(run: Run) -> dict[str, Any] | None:
    """The identity of the biLM and, if it was fine-tuned on a task's text, the summary of that."""
    identity = elmo_identity(run)
    if identity is None:
        return None
    finetuning = finetuning_of(run.config.elmo.model)
    return identity if finetuning is None else {**identity, "finetuning": finetuning}


def vectors_identity(path: str | None) -> dict[str, str] | None:
    """The file of word vectors and its checksum."""
    return None if path is None else {"path": path, "sha256": sha256_file(path)}


def read_record(path: Path) -> dict[str, Any]:
    """The record in a file or a run's folder, in the current or an earlier format."""
    path = path / RECORD if path.is_dir() else path
    record = read_run_file(path)
    try:
        kind = kind_of(record)
    except DataError as error:
        raise DataError(f"{path}: {error.message}", error.hint) from error
    if kind != "task":
        raise DataError(f"{path}: not the record of a task run (format {record.get('format')!r:.80}, kind {kind!r}).")
    if problem := find_record_problem(kind, record):
        hint = "Delete the run's folder and train again."
        raise DataError(f"{path}: {describe_problem(kind, record, problem)}.", hint)
    return record


def find_records(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """All records in the given files and, at any depth, folders; each has its file's name under "path"."""
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path} does not exist.", "Name folders of `elmo task train` runs.")
        files += sorted(path.rglob(RECORD)) if path.is_dir() else [path]
    if not files:
        raise DataError(f"No {RECORD} in {', '.join(map(str, paths))}.", "Has `elmo task train` finished there?")
    return [{**read_record(file), "path": str(file)} for file in dict.fromkeys(files)]
