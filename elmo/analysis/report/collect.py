"""What a report is made of: every JSON record below the named places, told apart by what it holds.

First step of a report. Records are plain data here: which code wrote them does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmo.errors import DataError

_NOT_RECORDS = {"config.json", "words.json", "manifest.json"}  # beside records, never one
_TASK_KEYS = {"task", "metric", "seed", "config", "data", "elmo", "dev", "test", "mixes", "best", "curve"}


@dataclass(frozen=True)
class Found:
    """One record and its place, written as the reader knows it: from the named folder on."""

    path: str
    values: Any


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All records by kind, in the order in which they were found."""

    tasks: list[dict[str, Any]] = field(default_factory=list)  # `elmo task train`, each with its place under "path"
    probes: list[Found] = field(default_factory=list)  # `elmo probe`
    trainings: list[Found] = field(default_factory=list)  # report.json of `elmo pretrain`
    courses: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # of a training, by its report's place
    finetunings: list[Found] = field(default_factory=list)  # finetune.json of `elmo finetune`
    demos: list[Found] = field(default_factory=list)  # `elmo demo --json`
    neighbours: list[Found] = field(default_factory=list)  # `elmo similar --json`
    geometries: list[Found] = field(default_factory=list)  # `elmo geometry --out`
    unread: list[str] = field(default_factory=list)  # files that are no JSON, with what is wrong

    def __len__(self) -> int:
        others = [*self.probes, *self.trainings, *self.finetunings, *self.demos, *self.neighbours, *self.geometries]
        return len(self.tasks) + len(others)


def collect(places: Iterable[str | Path]) -> Evidence:
    """Everything in the given files and, however deep, folders; a file that is named twice counts once."""
    evidence, seen = Evidence(), set()
    for place in map(Path, places):
        if not place.exists():
            raise DataError(f"{place} does not exist.", "Name folders or files with records.")
        for file in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
            if file.resolve() not in seen and file.name not in _NOT_RECORDS and file.is_file():
                seen.add(file.resolve())
                _add(evidence, file, shown_path(place, file))
    return evidence


def shown_path(place: Path, file: Path) -> str:
    """A path without what lies above the named folder, for that is another machine's business."""
    below = Path(file.name) if file == place else Path(place.resolve().name) / file.relative_to(place)
    return (below if place.is_absolute() or ".." in place.parts else file).as_posix()


def _add(evidence: Evidence, file: Path, path: str) -> None:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        evidence.unread.append(f"{path}: {error}")
        return
    found = Found(path, values)
    if isinstance(values, Mapping):
        if values.get("format") == "elmo-task-record" or values.keys() >= _TASK_KEYS:
            evidence.tasks.append({**values, "path": path})
        elif {"probe", "vectors", "scores"} <= values.keys():
            evidence.probes.append(found)
        elif {"step", "perplexity", "definition"} <= values.keys():
            evidence.trainings.append(found)
            evidence.courses[path] = _course_beside(file)
        elif {"coverage", "before", "after"} <= values.keys():
            evidence.finetunings.append(found)
        elif {"senses", "neighbours"} <= values.keys():
            evidence.demos.append(found)
        elif "geometry" in values:
            evidence.geometries.append(found)
        elif "neighbours" in values:
            evidence.neighbours.append(found)
    elif isinstance(values, list) and values and isinstance(values[0], Mapping):
        is_similar = {"score", "tokens", "position"} <= values[0].keys()
        evidence.neighbours.extend([Found(path, {"neighbours": values})] if is_similar else [])


def _course_beside(report: Path) -> list[dict[str, float]]:
    """The validations of a training: NAMEcourse.json beside NAMEreport.json; empty where there is none."""
    course = report.with_name(report.name.removesuffix("report.json") + "course.json")
    if not report.name.endswith("report.json") or not course.is_file():
        return []
    try:
        values = json.loads(course.read_text(encoding="utf-8"))
    except ValueError:
        return []
    points = values if isinstance(values, list) else []
    return [point for point in points if isinstance(point, dict) and {"step", "reset"} <= point.keys()]
