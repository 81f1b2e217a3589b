"""The list of all runs of the six tasks, their order and settings, as plain values; run_all.py starts them.

The folder of a run is OUT/runs/TASK/CELL/seed-N. Cells have the names of `elmo task sweep` and `elmo task curve`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmo.settings import read_toml
from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.learning_curve import learning_curve_cells
from elmo.tasks.record import read_record
from elmo.tasks.sweep import Cell, sweep_cells
from elmo.tasks.task import load_task

HERE = Path(__file__).parent
SECONDS = {
    "squad": 280,
    "snli": 100,
    "srl": 100,
    "ner": 90,
    "coref": 90,
    "sst": 70,
}  # estimated duration of a run, for the order
SUFFIX = {"squad": "json", "snli": "jsonl", "srl": "conll05", "ner": "iob2", "coref": "conll", "sst": "txt"}
SWEPT = ("srl", "snli", "ner", "sst")  # Tables 2 and 3
CURVED = {"ner": 12_543, "sst": 8_544}  # tasks with a learning curve (Figure 1): number of training examples
SHARES = (0.001, 0.01, 0.1)  # the main run uses the whole file
TRIES = {"srl": ("optim.lr", (5e-4, 1e-3, 2e-3), {"epochs": 4})}  # settings selected on dev, in runs without test file


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process. `name` is its folder below OUT; `needs` are the jobs that must be finished before it."""

    name: str
    task: str
    priority: int
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)  # section.key: value
    needs: tuple[str, ...] = ()
    test: bool = True

    @property
    def embeds(self) -> bool:
        """Whether the job only fills the cache of layers."""
        return self.name.startswith("embed/")


def all_jobs(tasks: Sequence[str], seeds: int, overrides: Mapping[str, Any]) -> list[Job]:
    """All jobs in the order in which they start. `overrides` are settings for all of them."""
    jobs: list[Job] = []
    for task in tasks:
        jobs.append(
            Job(name=f"embed/{task}", task=task, priority=-1, seconds=SECONDS[task], settings=elmo_on({}, overrides))
        )
        jobs += _tries(task, overrides)
        jobs += _main(task, seeds, overrides)
        jobs += _sweep(task, overrides) if task in SWEPT else []
        jobs += _learning_curve(task, seeds, overrides) if task in CURVED else []
    return sorted(jobs, key=_order)


def _order(job: Job) -> tuple[float, ...]:
    """By priority, then by seed, then longest first; further seeds (priority 2) start with the shortest tasks."""
    if job.priority == 2:
        return job.priority, job.seconds, job.settings["train.seed"]
    return job.priority, job.settings.get("train.seed", 0), -job.seconds


def base_of(task: str) -> RunConfig:
    """The settings of the task with ELMo, without data files."""
    return make_config(load_task(task), read_toml(HERE / f"{task}.toml"), {"elmo": {"mode": "frozen"}})


def elmo_on(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with ELMo enabled, as section.key: value."""
    return {"elmo.mode": "frozen", **flat(settings), **overrides}


def _main(task: str, seeds: int, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """The main runs: the baseline and the task's own ELMo settings, with all seeds."""
    base = base_of(task)
    main_cell = f"all-{base.elmo.penalty:g}-{base.elmo.place}"
    for cell in sweep_cells(base):
        if cell.name in ("baseline", main_cell):
            for seed in range(seeds):
                yield _job(task, cell, seed, 2 if seed else 1, overrides)


def _sweep(task: str, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """The other cells of Tables 2 and 3, with two seeds."""
    base = base_of(task)
    main_cell = f"all-{base.elmo.penalty:g}-{base.elmo.place}"
    for cell in sweep_cells(base):
        if cell.name not in ("baseline", main_cell):
            for seed in (0, 1):
                yield _job(task, cell, seed, 3, overrides)


def _learning_curve(task: str, seeds: int, overrides: Mapping[str, Any]) -> Iterator[Job]:
    for cell in learning_curve_cells(base_of(task), CURVED[task], SHARES):
        for seed in range(seeds):
            yield _job(task, cell, seed, 4, overrides, seconds=40)


def _tries(task: str, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """Short runs that select a setting of the task on dev."""
    name, values, train = TRIES.get(task, ("", (), {}))
    for value in values:
        for side, elmo in (("without", {"mode": "none"}), ("with", {})):
            cell = Cell(name=f"{name}-{value:g}/{side}", settings={"elmo": elmo, "train": train})
            job = _job(task, cell, 0, 0, {name: value, **overrides}, seconds=40, folder="tries", tries=())
            yield Job(**{**vars(job), "test": False})


def _job(
    task: str,
    cell: Cell,
    seed: int,
    priority: int,
    overrides: Mapping[str, Any],
    *,
    seconds: float = 0,
    folder: str = "runs",
    tries: tuple[str, ...] | None = None,
) -> Job:
    settings = {"elmo.mode": "frozen", **flat(cell.settings), "train.seed": seed, **overrides}
    settings["elmo.mode"] = cell.settings["elmo"].get("mode", "frozen")
    embedding = () if settings["elmo.mode"] == "none" else (f"embed/{task}",)
    selection = tuple(job.name for job in _tries(task, overrides)) if tries is None else tries
    return Job(
        name=f"{folder}/{task}/{cell.name}/seed-{seed}",
        task=task,
        priority=priority,
        seconds=seconds or SECONDS[task],
        settings=settings,
        needs=(*embedding, *selection),
    )


def flat(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """{"elmo": {"mode": "none"}} as {"elmo.mode": "none"}."""
    return {f"{section}.{key}": value for section, values in settings.items() for key, value in values.items()}


def selected_setting(task: str, out: Path) -> dict[str, Any]:
    """The value of the task's setting in TRIES with the best dev score, averaged over runs with and without ELMo."""
    if task not in TRIES:
        return {}
    name, values, _ = TRIES[task]

    def mean_score(value: float) -> float:
        folder = out / "tries" / task / f"{name}-{value:g}"
        scores = [read_record(folder / side / "seed-0")["best"]["score"] for side in ("without", "with")]
        return sum(scores) / len(scores)

    return {name: max(values, key=mean_score)}


def files_of(data: Path, task: str) -> dict[str, Path]:
    """The data files of a task by split."""
    return {split: data / task / f"{split}.{SUFFIX[task]}.xz" for split in ("train", "dev", "test")}
