"""JSON records of what a command measured: one envelope for all kinds, so that a reader never guesses from keys.

    {"format": "elmo-record", "version": 1, "kind": "perplexity", "command": "elmo perplexity ...", ...}

`make_record` builds a record, `write_record` stores it, `kind_of` says what a file holds. Records written before the
envelope existed are still recognised, by the keys that each kind had.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from elmo import __version__
from elmo.errors import DataError
from elmo.files import atomic_file

FORMAT, VERSION = "elmo-record", 1

# kind of record -> the keys by which a record without envelope is recognised
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
    """The values in their envelope; `command` is the command line that makes the same record again, if there is one."""
    assert kind in KINDS, kind
    envelope = {"format": FORMAT, "version": VERSION, "kind": kind, "command": command, "versions": versions()}
    return envelope | {key: value for key, value in values.items() if key not in envelope}


def versions() -> dict[str, str]:
    """Versions of what numbers depend on: this package, its libraries, Python. Imports none of them."""
    known = {"elmo": __version__, "python": platform.python_version()}
    for library in ("torch", "numpy"):
        try:
            known[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return known


def write_record(path: str | Path, record: Mapping[str, Any]) -> None:
    """Writes a record as JSON, whole or not at all."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def kind_of(values: Any) -> str | None:
    """The kind of a record, with or without envelope; None if the values are not a record."""
    if not isinstance(values, Mapping):
        return None
    if values.get("format") == FORMAT:
        kind = values.get("kind")
        if values.get("version") != VERSION or kind not in KINDS:
            raise DataError(
                f"a record of kind {kind!r}, version {values.get('version')!r}; this elmo reads version {VERSION} "
                f"of {', '.join(KINDS)}.",
                "Read it with the elmo version that wrote it, or run its command again.",
            )
        return str(kind)
    return next((kind for kind, keys in KINDS.items() if keys <= values.keys()), None)
