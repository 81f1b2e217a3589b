"""Which runs there are, in which order, and what each is started with. Plain values: run_all.py starts them.

OUT/runs/TASK/CELL/seed-N holds a run. Cells are those of `elmo task sweep` and `elmo task curve`, by the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmo.pretrain.config import read_toml
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
}  # a guess of a run's, for the order
SUFFIX = {"squad": "json", "snli": "jsonl", "srl": "conll05", "ner": "iob2", "coref": "conll", "sst": "txt"}
SWEPT = ("srl", "snli", "ner", "sst")  # Tables 2 and 3
CURVED = {"ner": 12_543, "sst": 8_544}  # Figure 1, and how many examples their training files have
SHARES = (0.001, 0.01, 0.1)  # the whole file is the main run
TRIES = {"srl": ("optim.lr", (5e-4, 1e-3, 2e-3), {"epochs": 4})}  # a setting chosen on dev, in runs without a test file


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process. `name` is its folder below OUT; `needs` are jobs that must be done before."""

    name: str
    task: str
    priority: int
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)  # section.key: value
    needs: tuple[str, ...] = ()
    test: bool = True

    @property
    def embeds(self) -> bool:
        return self.name.startswith("embed/")


def all_jobs(tasks: Sequence[str], seeds: int, over: Mapping[str, Any]) -> list[Job]:
    """Every job, first to start first. `over` are settings for all of them."""
    jobs: list[Job] = []
    for task in tasks:
        jobs.append(
            Job(name=f"embed/{task}", task=task, priority=-1, seconds=SECONDS[task], settings=elmo_on({}, over))
        )
        jobs += _tries(task, over)
        jobs += _main(task, seeds, over)
        jobs += _sweep(task, over) if task in SWEPT else []
        jobs += _curve(task, seeds, over) if task in CURVED else []
    return sorted(jobs, key=_order)


def _order(job: Job) -> tuple[float, ...]:
    """Longest first, but for more seeds, of which cheap tasks' come first; all of a seed before the next."""
    if job.priority == 2:
        return job.priority, job.seconds, job.settings["train.seed"]
    return job.priority, job.settings.get("train.seed", 0), -job.seconds


def base_of(task: str) -> RunConfig:
    """The task's settings with ELMo, without files."""
    return make_config(load_task(task), read_toml(HERE / f"{task}.toml"), {"elmo": {"mode": "frozen"}})


def elmo_on(settings: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    return {"elmo.mode": "frozen", **flat(settings), **over}


def _main(task: str, seeds: int, over: Mapping[str, Any]) -> Iterator[Job]:
    base = base_of(task)
    own = f"all-{base.elmo.penalty:g}-{base.elmo.place}"
    for cell in sweep_cells(base):
        if cell.name in ("baseline", own):
            for seed in range(seeds):
                yield _job(task, cell, seed, 2 if seed else 1, over)


def _sweep(task: str, over: Mapping[str, Any]) -> Iterator[Job]:
    base = base_of(task)
    own = f"all-{base.elmo.penalty:g}-{base.elmo.place}"
    for cell in sweep_cells(base):
        if cell.name not in ("baseline", own):
            for seed in (0, 1):
                yield _job(task, cell, seed, 3, over)


def _curve(task: str, seeds: int, over: Mapping[str, Any]) -> Iterator[Job]:
    for cell in learning_curve_cells(base_of(task), CURVED[task], SHARES):
        for seed in range(seeds):
            yield _job(task, cell, seed, 4, over, seconds=40)


def _tries(task: str, over: Mapping[str, Any]) -> Iterator[Job]:
    name, values, train = TRIES.get(task, ("", (), {}))
    for value in values:
        for side, elmo in (("without", {"mode": "none"}), ("with", {})):
            cell = Cell(name=f"{name}-{value:g}/{side}", settings={"elmo": elmo, "train": train})
            job = _job(task, cell, 0, 0, {name: value, **over}, seconds=40, folder="tries", tries=())
            yield Job(**{**vars(job), "test": False})


def _job(
    task: str,
    cell: Cell,
    seed: int,
    priority: int,
    over: Mapping[str, Any],
    *,
    seconds: float = 0,
    folder: str = "runs",
    tries: tuple[str, ...] | None = None,
) -> Job:
    settings = {"elmo.mode": "frozen", **flat(cell.settings), "train.seed": seed, **over}
    settings["elmo.mode"] = cell.settings["elmo"].get("mode", "frozen")
    embedded = () if settings["elmo.mode"] == "none" else (f"embed/{task}",)
    tried = tuple(job.name for job in _tries(task, over)) if tries is None else tries
    return Job(
        name=f"{folder}/{task}/{cell.name}/seed-{seed}",
        task=task,
        priority=priority,
        seconds=seconds or SECONDS[task],
        settings=settings,
        needs=(*embedded, *tried),
    )


def flat(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """{"elmo": {"mode": "none"}} as {"elmo.mode": "none"}."""
    return {f"{section}.{key}": value for section, values in settings.items() for key, value in values.items()}


def chosen(task: str, out: Path) -> dict[str, Any]:
    """The value of the task's tried setting that was best on dev, in the mean with and without ELMo."""
    if task not in TRIES:
        return {}
    name, values, _ = TRIES[task]

    def mean(value: float) -> float:
        folder = out / "tries" / task / f"{name}-{value:g}"
        scores = [read_record(folder / side / "seed-0")["best"]["score"] for side in ("without", "with")]
        return sum(scores) / len(scores)

    return {name: max(values, key=mean)}


def files_of(data: Path, task: str) -> dict[str, Path]:
    return {split: data / task / f"{split}.{SUFFIX[task]}.xz" for split in ("train", "dev", "test")}
