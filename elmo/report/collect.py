"""Finds all JSON records below the given folders, sorts them by kind and checks that they are complete.

This is the first step of a report. The records are plain data here; the code that wrote them is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import parse_json, read_json
from elmo.record_shapes import COURSE, describe_problem, find_record_problem
from elmo.records import kind_of
from elmo.schema import find_problem

_NOT_RECORDS = {"config.json", "words.json", "manifest.json"}  # files that commands write next to records
_OLD_TASK_FORMAT = "elmo-task-record"  # of task records before all kinds had one format
_MAX_BYTES = 64 << 20  # of a record


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
        if _is_list(file):
            return
        values = read_json(file, max_bytes=_MAX_BYTES)
        kind = kind_of(values)
    except (OSError, DataError) as error:
        records.unread.append(f"{path}: {error.message if isinstance(error, DataError) else error.strerror}")
        return
    if kind is None and values.get("format") == _OLD_TASK_FORMAT:
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
    if problem := find_record_problem(kind, values):
        records.unread.append(f"{path}: {describe_problem(kind, values, problem)}")
        return
    if kind == "task":
        records.tasks.append({**values, "path": path})
        return
    if kind == "training":
        records.courses[path] = _read_course(records, file, path)
    lists[kind].append(RecordFile(path, values))


def _is_list(file: Path) -> bool:
    """Whether a file begins as a JSON list; records are objects."""
    with file.open("rb") as opened:
        return opened.read(1024).lstrip().startswith(b"[")


def _read_course(records: Records, report: Path, path: str) -> list[dict[str, float]]:
    """The validations of a training from NAMEcourse.json next to NAMEreport.json; empty if there is no such file."""
    name = report.name.removesuffix("report.json") + "course.json"
    course = report.with_name(name)
    if not report.name.endswith("report.json") or not course.is_file():
        return []
    try:
        data = b'{"course": ' + course.read_bytes() + b"}" if course.stat().st_size <= _MAX_BYTES else b""
        values = parse_json(data, name)["course"]
    except (OSError, DataError) as error:
        records.unread.append(f"{path}: {error.message if isinstance(error, DataError) else error.strerror}")
        return []
    if problem := find_problem(values, COURSE):
        records.unread.append(f"{path}: {name}: {problem}")
        return []
    return list(values)
