"""The list of sources of a page: for each score, the command, the record files and the settings behind it.

Absolute paths are shortened to their last two parts, because the folders above them say nothing to other readers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from elmo.report.collect import RecordFile
from elmo.report.page import Cell, Source
from elmo.report.run_groups import Record, Score, data_share, task_title

_TASK_FACTS = ("task", "config", "data", "elmo", "vectors", "parameters", "seconds", "device", "versions")
_PROBE_FACTS = ("vectors", "data", "settings", "counts", "made", "versions")
_PROBE_DEFAULTS = {"epochs": 12, "seed": 0}  # of `elmo probe`


class Sources:
    """Collects the sources of a page, each once, numbered in the order of their first use."""

    def __init__(self, task_records: Sequence[Record] = ()) -> None:
        self._task_records = {record["path"]: record for record in task_records}
        self._sources: dict[tuple[str, ...], Source] = {}

    def all(self) -> list[Source]:
        return list(self._sources.values())

    def add(self, title: str, *, paths: Sequence[str], command: str, facts: Mapping[str, Any]) -> str:
        """The key of the source with these records; a new source is added to the list."""
        name = (title, *paths)
        if name not in self._sources:
            self._sources[name] = Source(
                key=f"record-{len(self._sources) + 1}",
                title=title,
                command=shorten_command(command),
                paths=tuple(paths),
                facts=shorten(facts),
            )
        return self._sources[name].key

    def add_runs(self, paths: Sequence[str]) -> str:
        """The key of the source of task runs that differ only in the seed, by the paths of their records."""
        runs = [self._task_records[path] for path in paths]
        first, elmo, share = runs[0], runs[0]["config"]["elmo"], data_share(runs[0])
        model = f"with ELMo ({elmo['layers']} layers, λ {elmo['penalty']:g}, {elmo['place']})"
        part = "" if share == 1 else f", {100 * share:g}% of the data"
        seeds = ", ".join(str(run["seed"]) for run in runs)
        facts: dict[str, Any] = {
            "scores": {f"seed {run['seed']}": {"dev": run["dev"], "test": run["test"]} for run in runs},
            **{name: first[name] for name in _TASK_FACTS if name in first},
        }
        title = f"{task_title(first['task'])} {model if first['elmo'] else 'no ELMo'}{part}"
        title += f", seed{'s' if len(runs) > 1 else ''} {seeds}"
        return self.add(title, paths=paths, command=str(first.get("command") or ""), facts=facts)

    def add_probe(self, probe: RecordFile) -> str:
        """The key of the source of a probe's record."""
        record = probe.values
        title = f"Probe {record['probe']} on {vectors_name(record['vectors'])}"
        facts = {name: record[name] for name in _PROBE_FACTS if name in record}
        return self.add(title, paths=[probe.path], command=probe_command(record), facts=facts)

    def score_cell(self, score: Score | None, *, strong: bool = False) -> Cell:
        """The score of task runs, linked to its source."""
        return (
            Cell(text="-") if score is None else Cell(text=str(score), source=self.add_runs(score.paths), strong=strong)
        )


def vectors_name(vectors: Mapping[str, Any]) -> str:
    """The name of the model or vectors that a record is about."""
    name = str(vectors.get("name") or "vectors").rstrip("/").replace("\\", "/").split("/")[-1]
    return f"{name} (untrained)" if vectors.get("trained") is False else name


def probe_command(record: Mapping[str, Any]) -> str:
    """The command of a probe's record, or for older records one rebuilt from it; DATA is the folder of its files."""
    if record.get("command"):
        return str(record["command"])
    vectors, settings, probe = record["vectors"], record.get("settings", {}), str(record["probe"])
    if "file_sha256" in vectors and vectors.get("layers", 1) > 1:  # vectors of another program
        call = f'from elmo.probes.run import run_probe; run_probe("{probe}", VECTORS, [DATA])'
        return shlex.join(["python", "-c", call])
    data = record.get("data", {}).values() if probe in ("pos", "ner", "similarity") else ()
    files = [str(about["file"]) for about in data if "file" in about]
    source = "--vectors" if "file_sha256" in vectors else "--model"
    words = ["elmo", "probe", probe, *(files or ["DATA"]), source, str(vectors["name"])]
    if settings.get("column") == "upos":
        words += ["--column", "upos"]
    for name, default in _PROBE_DEFAULTS.items():
        if settings.get(name, default) != default:
            words += [f"--{name}", str(settings[name])]
    if settings.get("limit"):
        words += ["--limit", str(settings["limit"])]
    return shlex.join(words)


def shorten(value: Any) -> Any:
    """Plain values in which each absolute path is shortened to its last two parts."""
    if isinstance(value, Mapping):
        return {str(key): shorten(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shorten(item) for item in value]
    return shorten_path(value) if isinstance(value, str) else value


def shorten_path(text: str) -> str:
    """The last two parts of an absolute path; other texts are unchanged."""
    is_path = re.fullmatch(r"(/|[A-Za-z]:[\\/])\S.*", text) is not None
    return "/".join(re.split(r"[\\/]", text.rstrip("/\\"))[-2:]).lstrip("/") if is_path else text


def shorten_command(command: str) -> str:
    """A command in which absolute paths are shortened, also in settings (key=/a/b/c)."""
    try:
        split = shlex.split(command)
    except ValueError:  # not a command line: a quotation mark is not closed
        return command
    words = []
    for word in split:
        key, equals, value = word.partition("=")
        words.append(f"{key}={shorten_path(value)}" if equals else shorten_path(word))
    return shlex.join(words)
