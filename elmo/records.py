"""JSON records of measurements: one envelope for all kinds of record, which says what a file holds.

    {"format": "elmo-record", "version": 1, "kind": "probe", "command": "elmo probe ...", "versions": {...}, ...}

`make_record` builds a record, `write_record` stores it (`write_json` stores plain values), `format_record` gives its
JSON text, and `kind_of` says what a file holds. Records that were written before the envelope existed are recognised by
their keys.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from elmo import __version__
from elmo.errors import DataError
from elmo.files import atomic_file

FORMAT, VERSION = "elmo-record", 1
_OLD_TASK_FORMAT = "elmo-task-record"  # of task records before the envelope

# kind of record -> the keys that identify it in a record without envelope
KINDS: dict[str, frozenset[str]] = {
    "task": frozenset({"task", "metric", "seed", "config", "data", "elmo", "dev", "test", "mixes", "best", "curve"}),
    "probe": frozenset({"probe", "vectors", "scores"}),
    "training": frozenset({"step", "perplexity", "definition"}),
    "perplexity": frozenset({"definition", "reset", "files"}),
    "finetuning": frozenset({"coverage", "before", "after"}),
    "demo": frozenset({"senses", "neighbours"}),
    "geometry": frozenset({"geometry"}),
    "neighbours": frozenset({"queries", "corpus", "without_context"}),
    "bench": frozenset({"machine", "results"}),
}


def make_record(kind: str, values: Mapping[str, Any], *, command: str | None = None) -> dict[str, Any]:
    """The values in their envelope; `command` is the command line that produces the same record again, if known."""
    assert kind in KINDS, kind
    envelope = {"format": FORMAT, "version": VERSION, "kind": kind, "command": command, "versions": versions()}
    assert not envelope.keys() & values.keys(), "the envelope's keys are not free for values"
    return {**envelope, **values}


def versions() -> dict[str, str]:
    """Versions of this package, of Python, and of the libraries that numbers depend on. Imports none of them."""
    installed = {"elmo": __version__, "python": platform.python_version()}
    for library in ("torch", "numpy"):
        try:
            installed[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return installed


def format_record(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON in ASCII; NaN and infinity, which JSON does not have, are null."""
    return json.dumps(_finite(record), allow_nan=False)


def write_record(path: str | Path, record: Mapping[str, Any]) -> None:
    """Writes a record as a JSON file, completely or not at all; NaN and infinity are null."""
    write_json(path, _finite(record))


def write_json(path: str | Path, values: Mapping[str, Any]) -> None:
    """Writes readable JSON in UTF-8, completely or not at all.

    A lone surrogate, which stands for a byte that is not UTF-8 in a file's name, is written as an escape.
    """
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)
    with atomic_file(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def kind_of(values: Any) -> str | None:
    """The kind of a record, with or without envelope; None if the values are not a record."""
    if not isinstance(values, Mapping):
        return None
    if values.get("format") == FORMAT:
        kind = values.get("kind")
        if values.get("version") != VERSION or not isinstance(kind, str) or kind not in KINDS:
            raise DataError(
                f"The record is of kind {kind!r:.80}, version {values.get('version')!r:.80}; expected version "
                f"{VERSION} of one of {', '.join(KINDS)}.",
                "Read it with the elmo version that wrote it, or run its command again.",
            )
        return str(kind)
    if values.get("format") == _OLD_TASK_FORMAT:
        return "task"
    return next((kind for kind, keys in KINDS.items() if keys <= values.keys()), None)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
