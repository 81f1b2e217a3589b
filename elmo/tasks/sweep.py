"""A set of runs from one set of settings: layers and places of ELMo (Tables 2 and 3); run again, it goes on.

Above the training loop: names each run's folder and its settings, and trains what is not done yet. The tables are made
from the records by elmo.analysis.
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
from elmo.tasks.train import Say, train

PENALTIES = (1.0, 0.001)  # Table 2's lambdas
PLACES = ("input", "both", "output")  # Table 3's columns


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One set of settings, to be run with every seed. `name` is its folder below the set's."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs in the order in which they are trained: (folder below the set's, its whole settings)."""

    runs: tuple[tuple[str, RunConfig], ...]

    def left(self, out: Path) -> int:
        """How many are not finished there."""
        return sum(not (out / name / RECORD).exists() for name, _ in self.runs)


def sweep_cells(base: RunConfig, *, layers: bool = True, places: bool = True) -> list[Cell]:
    """Table 2's four settings at the base's place, and Table 3's three with the base's lambda; those in both once."""
    elmo = base.elmo
    wanted: list[tuple[str, float, str]] = []
    if layers:
        wanted += [("top", elmo.penalty, elmo.place), *(("all", penalty, elmo.place) for penalty in PENALTIES)]
    if places:
        wanted += [("all", elmo.penalty, place) for place in PLACES]
    cells = {"baseline": Cell(name="baseline", settings={"elmo": {"mode": "none"}})} if layers else {}
    for chosen, penalty, place in wanted:
        # the last layer alone has no weights to hold together
        name = f"top-{place}" if chosen == "top" else f"all-{penalty:g}-{place}"
        cells[name] = Cell(name=name, settings={"elmo": {"layers": chosen, "penalty": penalty, "place": place}})
    return list(cells.values())


def make_plan(task: Task, layers: Sequence[Mapping[str, Any]], cells: Sequence[Cell], seeds: int) -> Plan:
    """Every cell with every seed, checked before anything is trained; all cells of a seed come before the next seed's.

    So a set that is cut short is whole for its first seeds.
    """
    first = make_config(task, *layers).train.seed
    return Plan(
        runs=tuple(
            (f"{cell.name}/seed-{seed}", make_config(task, *layers, cell.settings, {"train": {"seed": seed}}))
            for seed in range(first, first + seeds)
            for cell in cells
        )
    )


def with_elmo(layers: Sequence[Mapping[str, Any]], task: Task, out: Path) -> list[Mapping[str, Any]]:
    """The settings with ELMo on; its layers are kept on disk for all runs of the set unless a cache was chosen."""
    found: list[Mapping[str, Any]] = list(layers)
    if not make_config(task, *layers).elmo.used:
        found.append({"elmo": {"mode": "frozen"}})
    if not any("cache" in layer.get("elmo", {}) for layer in (task.defaults, *layers)):
        found.append({"elmo": {"cache": "disk", "cache_dir": str(out / "layers")}})
    return found


def train_plan(plan: Plan, out: str | Path, *, say: Say = lambda line: None, show: bool | None = None) -> list[Any]:
    """Trains what is left, in order; gives the records of all, each with its place under "path".

    Whatever cannot be read, and whatever is done but otherwise, is refused before the first training.
    """
    out = Path(out)
    names = [name for name, _ in plan.runs]
    if len(set(names)) != len(names):
        raise ConfigError("Two runs would lie in one folder.", f"Name each setting once: {', '.join(names)}.")
    done: dict[str, Any] = {}
    known: Identities = {}
    for name, config in plan.runs:
        if (out / name / RECORD).exists():
            done[name] = check_done(out / name, config, known)
        else:
            check_ready(config, known)
    say(f"{len(names)} runs in {out}, {len(done)} of them done")
    records = []
    for number, (name, config) in enumerate(plan.runs, start=1):
        if name not in done:
            say(f"[{number} of {len(names)}] {name}")
            done[name] = train(config, out / name, say=say, show=show)
        records.append({**done[name], "path": str(out / name / RECORD)})
    return records
