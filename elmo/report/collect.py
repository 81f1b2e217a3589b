"""What a report is made of: every JSON record below the named places, told apart by what it holds.

First step of a report. Records are plain data here: which code wrote them does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmo.errors import DataError

_NOT_RECORDS = {"config.json", "words.json", "manifest.json"}  # beside records, never one
_TASK_KEYS = {"task", "metric", "seed", "config", "data", "elmo", "dev", "test", "mixes", "best", "curve"}

# What the page reads of each kind of record, by path: + is each of at least one, * each of any number, what ends in ?
# may be missing or null, METRIC is the record's metric.
_OF_A_TASK = (
    "task", "seed", "data.train.examples", "data.+.sha256", "vectors", "dev.METRIC", "test", "test?.METRIC",
    "best.score", "best.update", "curve.+.update", "curve.+.dev.METRIC", "elmo", "elmo?.sha256", "config.elmo.layers",
    "config.elmo.penalty", "config.elmo.place", "config.data.fraction", "config.words",
    "mixes", "mixes.*.weights", "mixes.*.gamma",
)  # fmt: skip
_PERPLEXITIES = ("reset?", "carried?", "by_source?.*")
_NEEDED: dict[str, Sequence[str]] = {
    "task": _OF_A_TASK,
    "pos": ("vectors.name", "scores.metric", "scores.views.+.test", "scores.views.+.dev", "scores.usual_tag.test"),
    "ner": ("vectors.name", "scores.metric", "scores.views.+.test", "scores.views.+.dev", "scores.usual_tag.test"),
    "wsd": (
        "vectors.name",
        "scores.views.+.plain.ALL",
        "scores.wordnet_first_sense.ALL",
        "scores.semcor_most_frequent",
    ),
    "wic": ("vectors.name", "scores.views.+.plain.dev", "scores.views.+.centred.dev", "scores.always_same.dev"),
    "training": tuple(
        f"perplexity.{part}.{side}" for part in _PERPLEXITIES for side in ("forward", "backward", "mean", "predictions")
    ),
    "perplexity": (
        "files",
        "words",
        "unknown",
        *(f"reset.{side}" for side in ("forward", "backward", "mean", "predictions")),
    ),
    "finetuning": ("coverage", "before", "after"),
    "demo": (
        "neighbours.+.query",
        "neighbours.+.layers.+.+.score",
        "neighbours.+.layers.+.+.shown",
        *(f"senses.+.+.{name}" for name in ("within", "between", "nearest")),
        "plane?.*.senses",
        "plane?.*.points",
    ),
    "neighbours": (
        "command",
        "vectors",
        "corpus.file",
        "corpus.sentences",
        "queries.+.position",
        "queries.+.tokens",
        "queries.+.neighbours",
        *(f"queries.+.neighbours.*.{name}" for name in ("score", "tokens", "position")),
        "without_context.*.vectors.name",
        "without_context.*.words",
        "without_context.*.words.*.word",
    ),
    "similarity": ("vectors.name", "scores.views.+.plain", "scores.views.+.centred"),
    "geometry": ("geometry.+.layer", "geometry.+.anisotropy", "geometry.+.self_similarity", "geometry.+.norm"),
}


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
    perplexities: list[Found] = field(default_factory=list)  # `elmo perplexity --json`
    finetunings: list[Found] = field(default_factory=list)  # finetune.json of `elmo finetune`
    demos: list[Found] = field(default_factory=list)  # `elmo demo --json`
    neighbours: list[Found] = field(default_factory=list)  # `elmo similar --json`
    geometries: list[Found] = field(default_factory=list)  # `elmo geometry --out`
    unread: list[str] = field(default_factory=list)  # files that are no JSON or no whole record, with what is wrong

    def __len__(self) -> int:
        others = [*self.probes, *self.trainings, *self.perplexities, *self.finetunings, *self.demos]
        return len(self.tasks) + len(others) + len(self.neighbours) + len(self.geometries)


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
    kind = _kind(values)
    if kind is None:
        return
    metric = str(values.get("metric"))
    for needed in _NEEDED.get(kind, ()):
        if not _has(values, needed.replace("METRIC", metric).split(".")):
            evidence.unread.append(f"{path}: a record of {kind} without {needed.replace('METRIC', metric)}")
            return
    if kind == "task":
        evidence.tasks.append({**values, "path": path})
        return
    if kind == "training":
        evidence.courses[path] = _course_beside(file)
    homes = {
        "training": evidence.trainings,
        "perplexity": evidence.perplexities,
        "finetuning": evidence.finetunings,
        "demo": evidence.demos,
        "neighbours": evidence.neighbours,
        "geometry": evidence.geometries,
    }
    homes.get(kind, evidence.probes).append(Found(path, values))


def _kind(values: Any) -> str | None:
    """What a file holds; None: something else than a record."""
    if not isinstance(values, Mapping):
        return None
    if values.get("format") == "elmo-task-record" or values.keys() >= _TASK_KEYS:
        return "task"
    if {"probe", "vectors", "scores"} <= values.keys():
        return str(values["probe"])
    marks = {
        "training": {"step", "perplexity", "definition"},
        "perplexity": {"definition", "reset", "files"},
        "finetuning": {"coverage", "before", "after"},
        "demo": {"senses", "neighbours"},
        "geometry": {"geometry"},
        "neighbours": {"queries", "corpus", "without_context"},
    }
    return next((kind for kind, keys in marks.items() if keys <= values.keys()), None)


def _has(values: Any, path: Sequence[str]) -> bool:
    if not path:
        return True
    name, rest = path[0], path[1:]
    if name in ("*", "+"):
        each = list(values.values()) if isinstance(values, Mapping) else values
        return isinstance(each, list) and (bool(each) or name == "*") and all(_has(one, rest) for one in each)
    if not isinstance(values, Mapping):
        return False
    if name.endswith("?"):
        inner = values.get(name[:-1])
        return inner is None or _has(inner, rest)
    return name in values and _has(values[name], rest)


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
