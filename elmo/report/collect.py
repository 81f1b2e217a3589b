"""Finds all JSON records below the given folders, sorts them by kind and checks that they are complete.

This is the first step of a report. The records are plain data here; the code that wrote them is not imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.records import kind_of

_NOT_RECORDS = {"config.json", "words.json", "manifest.json"}  # files that commands write next to records
_OLD_TASK_FORMAT = "elmo-task-record"  # of task records before all kinds had one format

# Paths of the values that the report reads, by kind of record; for a probe, by its name. In a path, + stands for every
# item of a non-empty list or dict, * for every item of any; a name that ends in ? may be missing or null; METRIC is the
# record's metric.
_DIRECTIONS = ("forward", "backward?", "mean", "predictions")
_REQUIRED: dict[str, Sequence[str]] = {
    "task": (
        "task", "seed", "data.train.examples", "data.+.sha256", "vectors", "dev.METRIC", "test", "test?.METRIC",
        "best.score", "best.update", "curve.+.update", "curve.+.dev.METRIC", "elmo", "elmo?.sha256",
        "config.elmo.layers", "config.elmo.penalty", "config.elmo.place", "config.data.fraction", "config.words",
        "mixes", "mixes.*.weights", "mixes.*.gamma",
    ),
    "pos": ("vectors.name", "scores.metric", "scores.views.+.test", "scores.views.+.dev", "scores.usual_tag.test"),
    "ner": ("vectors.name", "scores.metric", "scores.views.+.test", "scores.views.+.dev", "scores.usual_tag.test"),
    "wsd": (
        "vectors.name", "scores.views.+.plain.ALL", "scores.wordnet_first_sense.ALL", "scores.semcor_most_frequent",
    ),
    "wic": ("vectors.name", "scores.views.+.plain.dev", "scores.views.+.centred.dev", "scores.always_same.dev"),
    "similarity": ("vectors.name", "scores.views.+.plain", "scores.views.+.centred"),
    "training": tuple(
        f"perplexity.{part}.{value}" for part in ("reset?", "carried?", "by_source?.*") for value in _DIRECTIONS
    ),
    "perplexity": ("files", "words", "unknown", "definition", *(f"reset.{value}" for value in _DIRECTIONS)),
    "finetuning": ("coverage", "before", "after"),
    "demo": (
        "neighbours.+.query", "neighbours.+.layers.+.+.score", "neighbours.+.layers.+.+.shown",
        *(f"senses.+.+.{value}" for value in ("within", "between", "nearest")), "plane?.*.senses", "plane?.*.points",
    ),
    "neighbours": (
        "command", "vectors", "corpus.file", "corpus.sentences", "queries.+.position", "queries.+.tokens",
        "queries.+.neighbours", *(f"queries.+.neighbours.*.{value}" for value in ("score", "tokens", "position")),
        "without_context.*.vectors.name", "without_context.*.words", "without_context.*.words.*.word",
    ),
    "geometry": ("geometry.+.layer", "geometry.+.anisotropy", "geometry.+.self_similarity", "geometry.+.norm"),
}  # fmt: skip


@dataclass(frozen=True)
class RecordFile:
    """One record and the path of its file, from the given folder on."""

    path: str
    values: Any


@dataclass(frozen=True, kw_only=True)
class Records:
    """All records by kind, in the order in which their files were read."""

    tasks: list[dict[str, Any]] = field(default_factory=list)  # `elmo task train`; the file's path is under "path"
    probes: list[RecordFile] = field(default_factory=list)  # `elmo probe`
    trainings: list[RecordFile] = field(default_factory=list)  # report.json of `elmo pretrain`
    courses: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # validations, by path of a training
    perplexities: list[RecordFile] = field(default_factory=list)  # `elmo perplexity --json`
    finetunings: list[RecordFile] = field(default_factory=list)  # finetune.json of `elmo finetune`
    demos: list[RecordFile] = field(default_factory=list)  # `elmo demo --json`
    neighbours: list[RecordFile] = field(default_factory=list)  # `elmo similar --json`
    geometries: list[RecordFile] = field(default_factory=list)  # `elmo geometry --out`
    unread: list[str] = field(default_factory=list)  # files that are not JSON or lack something, with the reason

    def __len__(self) -> int:
        others = [*self.probes, *self.trainings, *self.perplexities, *self.finetunings, *self.demos]
        return len(self.tasks) + len(others) + len(self.neighbours) + len(self.geometries)


def collect(places: Iterable[str | Path]) -> Records:
    """All records in the given files and folders, with their subfolders; a file that is named twice counts once."""
    records, seen = Records(), set()
    for place in map(Path, places):
        if not place.exists():
            raise DataError(f"{place} does not exist.", "Name folders or files with records.")
        for file in sorted(place.rglob("*.json")) if place.is_dir() else [place]:
            if file.resolve() not in seen and file.name not in _NOT_RECORDS and file.is_file():
                seen.add(file.resolve())
                _add(records, file, display_path(place, file))
    return records


def display_path(place: Path, file: Path) -> str:
    """The path of a file as the report shows it: without the folders above an absolute `place`."""
    below = Path(file.name) if file == place else Path(place.resolve().name) / file.relative_to(place)
    return (below if place.is_absolute() or ".." in place.parts else file).as_posix()


def _add(records: Records, file: Path, path: str) -> None:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        kind = kind_of(values)
    except (OSError, ValueError, DataError) as error:
        records.unread.append(f"{path}: {error}")
        return
    if kind is None and isinstance(values, dict) and values.get("format") == _OLD_TASK_FORMAT:
        kind = "task"  # an incomplete record of that format: the check below says what it lacks
    lists = {
        "probe": records.probes,
        "training": records.trainings,
        "perplexity": records.perplexities,
        "finetuning": records.finetunings,
        "demo": records.demos,
        "neighbours": records.neighbours,
        "geometry": records.geometries,
    }
    if kind != "task" and kind not in lists:
        return
    name = str(values.get("probe")) if kind == "probe" else kind
    metric = str(values.get("metric"))
    for required in _REQUIRED.get(name, ("probe", "vectors", "scores")):
        value_path = required.replace("METRIC", metric)
        if not _has(values, value_path.split(".")):
            records.unread.append(f"{path}: a record of {name} without {value_path}")
            return
    if kind == "task":
        records.tasks.append({**values, "path": path})
        return
    if kind == "training":
        records.courses[path] = _read_course(file)
    lists[kind].append(RecordFile(path, values))


def _has(values: Any, path: Sequence[str]) -> bool:
    """Whether nested values have something at the path; _REQUIRED explains its signs."""
    if not path:
        return True
    name, rest = path[0], path[1:]
    if name in ("*", "+"):
        items = list(values.values()) if isinstance(values, Mapping) else values
        return isinstance(items, list) and (bool(items) or name == "*") and all(_has(item, rest) for item in items)
    if not isinstance(values, Mapping):
        return False
    if name.endswith("?"):
        inner = values.get(name[:-1])
        return inner is None or _has(inner, rest)
    return name in values and _has(values[name], rest)


def _read_course(report: Path) -> list[dict[str, float]]:
    """The validations of a training from NAMEcourse.json next to NAMEreport.json; empty if there is no such file."""
    course = report.with_name(report.name.removesuffix("report.json") + "course.json")
    if not report.name.endswith("report.json") or not course.is_file():
        return []
    try:
        values = json.loads(course.read_text(encoding="utf-8"))
    except ValueError:
        return []
    points = values if isinstance(values, list) else []
    return [point for point in points if isinstance(point, dict) and {"step", "reset"} <= point.keys()]
