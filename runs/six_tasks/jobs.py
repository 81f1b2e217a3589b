"""The list of all runs of the six tasks, their order and settings, as plain values; run_all.py starts them.

The folder of a run is OUT/runs/TASK/CELL/seed-N. Cells have the names of `elmo task sweep` and `elmo task curve`; the
runs with a biLM that was fine-tuned on the task's text are in the cell tuned-CELL, and use OUT/bilms/TASK/bilm. The
runs of OUT/variants/TASK/VARIANT/SIDE/seed-N compare settings on dev, without a test file.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elmo.settings import read_toml
from elmo.tasks.config import RunConfig, make_config
from elmo.tasks.learning_curve import learning_curve_cells
from elmo.tasks.record import read_record
from elmo.tasks.sweep import Cell, sweep_cells
from elmo.tasks.task import load_task

HERE = Path(__file__).parent
RECORDS = HERE / "first_edition", HERE / "records"  # durations are those of the first folder that has a cell
# duration of a run that has no record yet, with 14 processes on one H200
SECONDS = {"squad": 560, "snli": 310, "srl": 215, "ner": 140, "coref": 200, "sst": 125}
EMBEDDING_SECONDS = 60  # of the layers of a task's files, estimated
FINETUNING_SECONDS = 60  # an epoch on the largest of the texts and two measurements of perplexity, estimated
SUFFIX = {"squad": "json", "snli": "jsonl", "srl": "conll05", "ner": "iob2", "coref": "conll", "sst": "txt"}
SWEPT = ("squad", "srl", "snli", "ner", "sst")  # Tables 2 and 3
# tasks with a learning curve (Figure 1): number of training examples
CURVED = {"snli": 94_091, "srl": 40_107, "ner": 12_543, "sst": 8_544}
SHARES = (0.001, 0.01, 0.1)  # the main run uses the whole file
TRIES = {"srl": ("optim.lr", (5e-4, 1e-3, 2e-3), {"epochs": 4})}  # settings selected on dev, in runs without test file
VARIANTS: dict[str, dict[str, Any]] = {  # settings that are compared on dev; each replaces one setting of the main run
    "layer-norm-token": {"elmo.layer_norm": "token"},
    "layer-norm-batch": {"elmo.layer_norm": "batch"},
    "elmo-dropout-0": {"elmo.dropout": 0.0},
    "elmo-dropout-0.2": {"elmo.dropout": 0.2},
    "elmo-dropout-0.5": {"elmo.dropout": 0.5},
    "longer": {},  # twice the epochs and the patience of the task, without and with ELMo
}


# a smaller number starts earlier
PRIORITY = {
    "embed": -1,
    "tries": 0,
    "tune": 0,
    "seed 0": 1,
    "seeds": 2,
    "tuned": 3,
    "tables": 4,
    "curve": 5,
    "variants": 6,
}


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
    def kind(self) -> str:
        """What the job does: "embed" fills the cache of layers, "finetune" a biLM's folder, "train" a run's."""
        first = self.name.partition("/")[0]
        return {"embed": "embed", "embed-tuned": "embed", "bilms": "finetune"}.get(first, "train")

    @property
    def uses_tuned(self) -> bool:
        """Whether the job uses the biLM that was fine-tuned on the text of its task."""
        return self.kind != "finetune" and f"bilms/{self.task}" in self.needs


def all_jobs(
    tasks: Sequence[str],
    seeds: int,
    overrides: Mapping[str, Any],
    *,
    finetunes: bool = False,
    variants: Sequence[str] = (),
) -> list[Job]:
    """All jobs in the order in which they start. `overrides` are settings for all of them.

    With `finetunes` each task is also trained with a biLM that is fine-tuned on its text; `variants` are names in
    VARIANTS.
    """
    jobs: list[Job] = []
    for task in tasks:
        jobs.append(
            Job(
                name=f"embed/{task}",
                task=task,
                priority=PRIORITY["embed"],
                seconds=EMBEDDING_SECONDS,
                settings=elmo_on({}, overrides),
            )
        )
        jobs += _tries(task, overrides)
        jobs += _main(task, seeds, overrides)
        jobs += _sweep(task, seeds, overrides) if task in SWEPT else []
        jobs += _learning_curve(task, seeds, overrides) if task in CURVED else []
        jobs += _finetuned(task, seeds, overrides) if finetunes else []
        for variant in variants:
            jobs += _variant(task, variant, seeds, overrides)
    return sorted(jobs, key=_order)


def longest_first(jobs: Sequence[Job]) -> list[Job]:
    """The runs by duration, so that none of the long ones starts last; the jobs that they need stay before them."""

    def order(job: Job) -> tuple[bool, float]:
        is_run = job.priority >= PRIORITY["seed 0"]
        return is_run, -job.seconds if is_run else 0.0

    return sorted(jobs, key=order)


def with_needed(jobs: Sequence[Job], pattern: str) -> list[Job]:
    """The jobs whose name matches a glob, and the jobs that they need, in the same order."""
    by_name = {job.name: job for job in jobs}
    names = {job.name for job in jobs if fnmatch.fnmatchcase(job.name, pattern)}
    while missing := {needed for name in names for needed in by_name[name].needs} - names:
        names |= missing
    return [job for job in jobs if job.name in names]


def _order(job: Job) -> tuple[float, ...]:
    """By priority, then by seed, then longest first; further seeds start with the shortest tasks."""
    if job.priority == PRIORITY["seeds"]:
        return job.priority, job.seconds, job.settings["train.seed"]
    return job.priority, job.settings.get("train.seed", 0), -job.seconds


def base_of(task: str) -> RunConfig:
    """The settings of the task with ELMo, without data files."""
    return make_config(load_task(task), read_toml(HERE / f"{task}.toml"), {"elmo": {"mode": "frozen"}})


def main_cell(task: str) -> str:
    """The name of the cell with the task's own ELMo settings."""
    elmo = base_of(task).elmo
    return f"all-{elmo.penalty:g}-{elmo.place}"


@functools.cache
def _measured_seconds() -> dict[str, float]:
    """The mean duration of the runs of a cell on a GPU, by TASK/CELL, from the records of earlier runs."""
    means: dict[str, float] = {}
    for folder in RECORDS:
        durations: dict[str, list[float]] = {}
        for file in folder.rglob("record.json"):
            record = read_record(file)
            if "NVIDIA" in record["device"]:
                cell = file.parent.parent.relative_to(folder).as_posix()
                durations.setdefault(cell, []).append(sum(record["seconds"].values()))
        means = {cell: sum(values) / len(values) for cell, values in durations.items()} | means
    return means


def estimate_seconds(cell: str, task: str) -> float:
    """The measured duration of a cell (TASK/CELL) with 14 parallel processes, or the estimate for its task."""
    return _measured_seconds().get(cell, SECONDS[task])


def elmo_on(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with ELMo enabled, as section.key: value."""
    return {"elmo.mode": "frozen", **flat(settings), **overrides}


def _main(task: str, seeds: int, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """The main runs: the baseline and the task's own ELMo settings, with all seeds."""
    for cell in sweep_cells(base_of(task)):
        if cell.name in ("baseline", main_cell(task)):
            for seed in range(seeds):
                yield _job(task, cell, seed, PRIORITY["seeds" if seed else "seed 0"], overrides)


def _sweep(task: str, seeds: int, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """The other cells of Tables 2 and 3."""
    for cell in sweep_cells(base_of(task)):
        if cell.name not in ("baseline", main_cell(task)):
            for seed in range(seeds):
                yield _job(task, cell, seed, PRIORITY["tables"], overrides)


def _finetuned(task: str, seeds: int, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """Fine-tuning of the biLM on the task's text, the layers of the tuned biLM, and the main runs with it."""
    bilm, layers = f"bilms/{task}", f"embed-tuned/{task}"
    settings = elmo_on({}, overrides)
    tune = Job(name=bilm, task=task, priority=PRIORITY["tune"], seconds=FINETUNING_SECONDS, settings=settings)
    yield tune
    yield replace(tune, name=layers, seconds=EMBEDDING_SECONDS, needs=(bilm,))
    for cell in sweep_cells(base_of(task)):
        if cell.name == main_cell(task):
            for seed in range(seeds):
                tuned = Cell(name=f"tuned-{cell.name}", settings=cell.settings)
                job = _job(task, tuned, seed, PRIORITY["tuned"], overrides)
                needs = tuple(needed for needed in job.needs if needed != f"embed/{task}")
                seconds = estimate_seconds(f"{task}/{cell.name}", task)
                yield replace(job, needs=(bilm, layers, *needs), seconds=seconds)


def _variant(task: str, variant: str, seeds: int, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """The runs of a variant; it is compared with the main runs by their dev scores, so it has no test file.

    There are none if the variant has the task's own settings.
    """
    base = base_of(task)
    own = flat({section: values for section, values in base.to_dict().items() if isinstance(values, dict)})
    if VARIANTS[variant] and all(own[key] == value for key, value in VARIANTS[variant].items()):
        return
    cell = next(cell for cell in sweep_cells(base) if cell.name == main_cell(task))
    settings, sides, factor = dict(VARIANTS[variant]), {"with": cell.settings}, 1
    if variant == "longer":
        settings = {"train.epochs": 2 * base.train.epochs, "train.patience": 2 * base.train.patience}
        sides, factor = {"without": {"elmo": {"mode": "none"}}, **sides}, 2
    for side, cell_settings in sides.items():
        estimated = factor * estimate_seconds(f"{task}/{cell.name if side == 'with' else 'baseline'}", task)
        for seed in range(seeds):
            variant_cell = Cell(name=f"{variant}/{side}", settings=cell_settings)
            priority, together = PRIORITY["variants"], {**settings, **overrides}
            job = _job(task, variant_cell, seed, priority, together, seconds=estimated, folder="variants")
            yield replace(job, test=False)


def _learning_curve(task: str, seeds: int, overrides: Mapping[str, Any]) -> Iterator[Job]:
    for cell in learning_curve_cells(base_of(task), CURVED[task], SHARES):
        for seed in range(seeds):
            yield _job(task, cell, seed, PRIORITY["curve"], overrides)


def _tries(task: str, overrides: Mapping[str, Any]) -> Iterator[Job]:
    """Short runs that select a setting of the task on dev."""
    name, values, train = TRIES.get(task, ("", (), {}))
    for value in values:
        for side, elmo in (("without", {"mode": "none"}), ("with", {})):
            cell = Cell(name=f"{name}-{value:g}/{side}", settings={"elmo": elmo, "train": train})
            job = _job(task, cell, 0, PRIORITY["tries"], {name: value, **overrides}, folder="tries", tries=())
            yield replace(job, test=False, seconds=estimate_seconds(f"tries/{task}/{cell.name}", task))


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
        seconds=seconds or estimate_seconds(f"{task}/{cell.name}", task),
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
