"""Settings of ner and sst runs for tests: a few sentences, a few thousand weights, about a second per run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.task import load_task

NER = """\
Ada B-PER
Lovelace I-PER
lived O
in O
London B-LOC
. O

The O
bank O
opened O
in O
New B-LOC
York I-LOC
. O

Grace B-PER
Hopper I-PER
left O
Acme B-ORG
. O

It O
rained O
. O

Acme B-ORG
Corp I-ORG
hired O
Ada B-PER
in O
York B-LOC
. O
"""
SST = """\
(4 (2 a) (4 (4 wonderful) (2 film)))
(0 (2 an) (0 (0 awful) (2 film)))
(2 (2 a) (2 film))
(3 (3 (3 rather) (3 nice)) (2 .))
(1 (1 (1 quite) (1 dull)) (2 .))
(4 (4 wonderful) (2 .))
"""
SMALL: dict[str, dict[str, Any]] = {
    "ner": {"chars": {"num_filters": 8, "dim": 4}, "words": {"dim": 8}, "model": {"hidden_dim": 12, "num_layers": 1}},
    "sst": {"words": {"dim": 8}, "model": {"hidden_dim": 12}},
}
TEXTS = {"ner": NER, "sst": SST}


def write_data(folder: Path, task: str, times: int = 1) -> Path:
    """Writes the sentences of the task to a file, repeated so many times."""
    path = folder / f"{task}-{times}.txt"
    path.write_text("\n".join([TEXTS[task]] * times), encoding="utf-8")
    return path


def overfit_settings(folder: Path, task: str, *overrides: dict[str, Any]) -> RunConfig:
    """Settings of a run that overfits the few sentences, which its training file repeats."""
    path = str(write_data(folder, task, times=60))
    overfit = {"data": {"train": path}, "optim": {"lr": 0.01}, "train": {"epochs": 6, "batch_size": 24}}
    return settings(folder, task, overfit, *overrides)


def settings(folder: Path, task: str, *overrides: dict[str, Any]) -> RunConfig:
    """Settings of a run that trains, validates and tests on the same few sentences; later overrides win."""
    path = str(write_data(folder, task))
    base = {
        "data": {"train": path, "dev": path, "test": path},
        "words": {"min_count": 1},
        "elmo": {"model": "tiny-random"},
        "train": {"batch_size": 4, "epochs": 4, "device": "cpu"},
    }
    return make_config(load_task(task), SMALL[task], base, *overrides)
