"""A set of runs that vary the layers and the places of ELMo (paper Tables 2 and 3); the set can be resumed.

This module assigns a folder and settings to each run, and trains the runs that are not finished. elmo.report makes the
tables from the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.tasks.checks import Identities, check_done, check_ready
from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.run import RECORD
from elmo.tasks.task import Task
from elmo.tasks.train import train
from elmo.tasks.training_loop import Say

PENALTIES = (1.0, 0.001)  # Table 2's lambdas
PLACES = ("input", "both", "output")  # Table 3's columns


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a table: settings that are run with every seed. `name` is its folder below the folder of the set."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs in the order of training: (folder below the folder of the set, complete settings)."""

    runs: tuple[tuple[str, RunConfig], ...]


def sweep_cells(base: RunConfig, *, layers: bool = True, places: bool = True) -> list[Cell]:
    """The four cells of Table 2 at the base's place, and the three cells of Table 3 with the base's lambda.

    A cell of both tables is returned once.
    """
    elmo = base.elmo
    variants: list[tuple[str, float, str]] = []  # layers, penalty, place
    if layers:
        variants += [("top", elmo.penalty, elmo.place), *(("all", penalty, elmo.place) for penalty in PENALTIES)]
    if places:
        variants += [("all", elmo.penalty, place) for place in PLACES]
    cells = {"baseline": Cell(name="baseline", settings={"elmo": {"mode": "none"}})} if layers else {}
    for mixed_layers, penalty, place in variants:
        # the top layer alone has no mix weights, so the penalty is not part of its name
        name = f"top-{place}" if mixed_layers == "top" else f"all-{penalty:g}-{place}"
        cells[name] = Cell(name=name, settings={"elmo": {"layers": mixed_layers, "penalty": penalty, "place": place}})
    return list(cells.values())


def make_plan(task: Task, settings: Sequence[Mapping[str, Any]], cells: Sequence[Cell], seeds: int) -> Plan:
    """Every cell with every seed; all settings are checked here, before anything is trained.

    All cells of a seed come before those of the next seed, so that an interrupted set is complete for its first seeds.
    Of `settings`, later ones override earlier ones.
    """
    first = make_config(task, *settings).train.seed
    return Plan(
        runs=tuple(
            (f"{cell.name}/seed-{seed}", make_config(task, *settings, cell.settings, {"train": {"seed": seed}}))
            for seed in range(first, first + seeds)
            for cell in cells
        )
    )


def with_elmo(settings: Sequence[Mapping[str, Any]], task: Task, out: Path) -> list[Mapping[str, Any]]:
    """The settings with ELMo enabled, and with a disk cache for all runs of the set unless they choose a cache."""
    extended: list[Mapping[str, Any]] = list(settings)
    if not make_config(task, *settings).elmo.used:
        extended.append({"elmo": {"mode": "frozen"}})
    if not any("cache" in tables.get("elmo", {}) for tables in (task.defaults, *settings)):
        extended.append({"elmo": {"cache": "disk", "cache_dir": str(out / "layers")}})
    return extended


def train_plan(plan: Plan, out: str | Path, *, say: Say = lambda line: None, show: bool | None = None) -> list[Any]:
    """Trains the unfinished runs in order; returns the records of all runs, each with its file under "path".

    Before the first training it raises an error for files that cannot be read, and for finished runs with other
    settings. Several processes may train one set: they take turns, and each run is trained once.
    """
    out = Path(out)
    names = [name for name, _ in plan.runs]
    if len(set(names)) != len(names):
        raise ConfigError("Two runs would be in one folder.", f"Name each setting once: {', '.join(names)}.")
    finished: dict[str, Any] = {}  # records
    identities: Identities = {}
    for name, config in plan.runs:
        record = check_done(out / name, config, identities) if (out / name / RECORD).exists() else None
        if record is not None:
            finished[name] = record
        else:
            check_ready(config, identities)
    say(f"{len(names)} runs in {out}, {len(finished)} of them done")
    records = []
    for number, (name, config) in enumerate(plan.runs, start=1):
        if name not in finished:
            say(f"[{number} of {len(names)}] {name}")
            finished[name] = train(config, out / name, say=say, show=show, wait=True)
        records.append({**finished[name], "path": str(out / name / RECORD)})
    return records
