"""record.json: what a run was and what came of it; all that tables, curves and pictures are made of.

task, metric, seed, config          as asked for
command                             that asks for it again, given a folder for --out
data                                of train, dev, test: path, sha256, examples
elmo, vectors                       model and sha256; null where there is none
dev, test                           scores in percent; test null where there was no test file
mixes                               by place ("input", "output"): softmax weights of the layers, gamma
epochs, updates, best               how long; best: epoch, update and score of the weights that were kept
curve                               a line a validation: epoch, update, loss, lr, dev, seconds
seconds, parameters, device, versions
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from elmo import __version__
from elmo.errors import DataError
from elmo.files import atomic_file, sha256_file
from elmo.settings import changed_settings, format_assignment
from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.run import RECORD, Run, Splits, read_json
from elmo.tasks.task import Task

KEYS = ("task", "metric", "seed", "config", "data", "elmo", "vectors", "dev", "test", "mixes", "best", "curve")
FORMAT, VERSION = "elmo-task-record", 1


def make_record(run: Run, splits: Splits, **results: Any) -> dict[str, Any]:
    """A record of a finished run; `results` are what the loop measured."""
    config, elmo = run.config, run.config.elmo
    weights = [p for p in run.model.parameters() if p.requires_grad]
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": run.task.name,
        "metric": run.task.metric,
        "seed": config.train.seed,
        "config": config.to_dict(),
        "command": command_of(run.task, config),
        "data": splits.about,
        "elmo": elmo_identity(run),
        "vectors": vectors_identity(config.words.vectors),
        **results,
        "mixes": run.model.inputs.mixes(),  # type: ignore[union-attr,operator]  # a TaskModel
        "parameters": sum(p.numel() for p in weights),
        "device": torch.cuda.get_device_name() if run.device.type == "cuda" else platform.machine(),
        "versions": {"elmo": __version__, "torch": torch.__version__, "python": platform.python_version()},
        **({"place": elmo.place} if elmo.used else {}),
    }


def command_of(task: Task, config: RunConfig) -> str:
    """`elmo task train` with every setting that is not the task's own."""
    words = ["elmo", "task", "train", task.name]
    for key, (_, value) in changed_settings(make_config(task).to_dict(), config.to_dict()).items():
        words += ["--set", format_assignment(key, value)]
    return shlex.join(words)


def elmo_identity(run: Run) -> dict[str, str] | None:
    """Which biLM, by its weights as they were before the task."""
    return None if run.elmo_sha256 is None else {"model": run.config.elmo.model, "sha256": run.elmo_sha256}


def vectors_identity(path: str | None) -> dict[str, str] | None:
    return None if path is None else {"path": path, "sha256": sha256_file(path)}


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Writes the run's last file."""
    with atomic_file(folder / RECORD) as partial:
        partial.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_record(path: Path) -> dict[str, Any]:
    """A record from its file or its run's folder."""
    path = path / RECORD if path.is_dir() else path
    record = read_json(path)
    if record.get("format") != FORMAT or record.get("version") != VERSION:
        raise DataError(f"{path}: not a record of a task run (format {record.get('format')!r}).")
    if missing := _missing(record):
        raise DataError(f"{path}: a record without {missing}.", "Delete the run's folder and train again.")
    return record


def _missing(record: dict[str, Any]) -> str | None:
    """The first thing that tables need and the record lacks."""
    for key in KEYS:
        if key not in record:
            return key
    config, metric = record["config"], record["metric"]
    for section, key in (("data", "fraction"), ("words", "vectors"), ("elmo", "mode")):
        if not isinstance(config, dict) or key not in (config.get(section) or {}):
            return f"config.{section}.{key}"
    for split in ("dev", "test"):
        if metric not in (record[split] or {}) and not (split == "test" and record[split] is None):
            return f"{split}.{metric}"
    for split, about in record["data"].items():
        if "sha256" not in about:
            return f"data.{split}.sha256"
    return None if "sha256" in (record["elmo"] or {"sha256": ""}) else "elmo.sha256"


def find_records(places: Iterable[str | Path]) -> list[dict[str, Any]]:
    """All records in the given files and, however deep, folders; each with its place under "path"."""
    files: list[Path] = []
    for place in map(Path, places):
        if not place.exists():
            raise DataError(f"{place} does not exist.", "Name folders of `elmo task train` runs.")
        files += sorted(place.rglob(RECORD)) if place.is_dir() else [place]
    if not files:
        raise DataError(f"No {RECORD} in {', '.join(map(str, places))}.", "Has `elmo task train` finished there?")
    return [{**read_record(file), "path": str(file)} for file in dict.fromkeys(files)]
